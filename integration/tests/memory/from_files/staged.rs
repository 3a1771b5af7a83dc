//! Processes go on before their contents are on a disk, and the image is reported good after that.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::{DISK, ON_DISK};
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use super::{has_holes, started};
use crate::suspended::{in_file, seen};

/// The directory of contents until then.
const STAGING: &str = "/run/stasis/staging";
const BYTES: u64 = 256 << 20;

#[test]
fn they_go_on_before_a_disk_has_them() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let holder = with_a_disk(stasis)?;
    let before = seen(stasis, &holder.bundle)?;
    let mut checkpoint = stands_still(stasis, &holder, |checkpoint| {
        holder.goes_on()?;
        ensure!(in_file(stasis, &holder.bundle)? == 0, "a file is mapped");
        ensure!(checkpoint.try_wait()?.is_none(), "the disk has nothing");
        Ok(())
    })?;
    ensure!(checkpoint.wait()?.success());
    assert_eq!(seen(stasis, &holder.bundle)?, before);
    let next = holder.next() - 1;
    has_holes(&holder, "image")?;
    ensure!(names_in(&stasis.path(STAGING))?.is_empty(), "in memory");
    holder.goes_on()?;
    holder.end()?;
    holder.bundle.restore("image")?;
    holder.is_back_at(next);
    holder.goes_on()?;
    holder.end()
}

#[test]
fn nothing_stays_of_what_was_not_stored() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let holder = with_a_disk(stasis)?;
    let (before, inventory) = (seen(stasis, &holder.bundle)?, stasis.inventory()?);
    for (signal, keeper) in [("KILL", true), ("KILL", false), ("TERM", true)] {
        let checkpoint = stands_still(stasis, &holder, |_| {
            if !keeper {
                stasis.kill_keepers()?;
            }
            let name = ["pkill", &format!("-{signal}"), "-x", "stasis-runtime"];
            stasis.run(&name).map(drop)
        })?;
        let output = checkpoint.wait_with_output()?;
        ensure!(!output.status.success(), "it has succeeded");
        if signal == "TERM" {
            let says = ["a signal asked for it to end", "runs on as before"];
            assert_contains(&String::from_utf8_lossy(&output.stderr), &says);
        }
        if !keeper {
            ensure!(!names_in(&stasis.path(STAGING))?.is_empty());
            stasis.run(&[PROGRAM, "recover"])?;
        }
        stasis.nothing_to_put_right()?;
        holder.goes_on().context(signal)?;
        holder.nothing_left_of_dump("image")?;
        ensure!(names_in(&stasis.path(STAGING))?.is_empty(), "{signal}");
        let on_disk = names_in(&stasis.path(DISK))?;
        ensure!(
            on_disk.len() == 1,
            "{signal}: {on_disk:?} and not lost+found"
        );
        assert_eq!(seen(stasis, &holder.bundle)?, before, "{signal}");
        assert_eq!(stasis.inventory()?, inventory, "{signal}");
    }
    holder.bundle.checkpoint("image", &[])?;
    holder.bundle.restore("image")?;
    holder.goes_on()?;
    holder.end()
}

/// The runtime and the keeper are killed, and then the container: contents in memory are no image,
/// and replace none.
#[test]
fn an_earlier_image_stays_though_the_container_has_ended() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let holder = with_a_disk(stasis)?;
    holder.bundle.checkpoint("image", &["--leave-running"])?;
    let next = holder.next();
    holder.goes_on()?;
    let mut checkpoint = stands_still(stasis, &holder, |_| {
        stasis.kill_keepers()?;
        stasis.run(&["pkill", "-KILL", "-x", "stasis-runtime"])?;
        let init = holder.bundle.pid()?.to_string();
        stasis.run(&["kill", "-KILL", &init]).map(drop)
    })?;
    ensure!(!checkpoint.wait()?.success(), "it has succeeded");
    ensure!(!names_in(&stasis.path(STAGING))?.is_empty());
    stasis.run(&[PROGRAM, "recover"])?;
    stasis.nothing_to_put_right()?;
    ensure!(names_in(&stasis.path(STAGING))?.is_empty());
    holder.end()?;
    holder.bundle.restore("image")?;
    holder.is_back_at(next);
    holder.goes_on()?;
    holder.end()
}

/// The job ends by itself, and then the checkpoint is told to end: contents in memory alone are no
/// last copy.
#[test]
fn no_image_stays_of_a_job_that_has_ended() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let holder = with_a_disk(stasis)?;
    let checkpoint = stands_still(stasis, &holder, |_| {
        let init = holder.bundle.pid()?.to_string();
        stasis.run(&["kill", "-KILL", &init])?;
        wait_until_clear(|| Ok(Some(holder.bundle.status()?).filter(|now| now != "stopped")))?;
        let end = ["pkill", "-TERM", "-x", "stasis-runtime"];
        stasis.run(&end).map(drop)
    })?;
    let output = checkpoint.wait_with_output()?;
    ensure!(!output.status.success(), "it has succeeded");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_contains(&said, &["a signal asked for it to end"]);
    ensure!(!said.contains("its image in"), "{said}");
    stasis.nothing_to_put_right()?;
    ensure!(names_in(&stasis.path(STAGING))?.is_empty());
    assert_eq!(names_in(&stasis.path(DISK))?, ["lost+found"]);
    holder.nothing_left_of_dump("image")?;
    let inventory = holder.bundle.image_path("image").join("inventory.img");
    ensure!(!inventory.exists(), "it looks like an image");
    holder.end()
}

/// The runtime and the keeper are killed, and the next call is its engine's `delete`.
#[test]
fn nothing_stays_in_memory_of_a_container_that_is_deleted() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let holder = with_a_disk(stasis)?;
    let mut checkpoint = stands_still(stasis, &holder, |_| {
        stasis.kill_keepers()?;
        let end = ["pkill", "-KILL", "-x", "stasis-runtime"];
        stasis.run(&end).map(drop)
    })?;
    ensure!(!checkpoint.wait()?.success(), "it has succeeded");
    ensure!(!names_in(&stasis.path(STAGING))?.is_empty());
    holder.bundle.delete()?;
    ensure!(names_in(&stasis.path(STAGING))?.is_empty());
    stasis.nothing_to_put_right()
}

/// Starts a job and checkpoints it once: its thread gets memory of its own with its first answer.
fn with_a_disk(stasis: &StasisHost) -> Result<MemoryContainer<'_>> {
    stasis.host.mount_disk(BYTES, DISK)?;
    stasis.set(&stasis.low_level, ON_DISK)?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    for name in names_in(&stasis.path(DISK))? {
        if name != "lost+found" {
            stasis.run(&["rm", "-r", &format!("{DISK}/{name}")])?;
        }
    }
    Ok(holder)
}

/// Begins a checkpoint, runs `meanwhile` while the disk takes nothing, and lets the disk go on.
fn stands_still(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    meanwhile: impl FnOnce(&mut Child) -> Result<()>,
) -> Result<Child> {
    stasis.run(&["fsfreeze", "--freeze", DISK])?;
    let happened = (|| {
        let options = &["--leave-running"];
        let mut checkpoint = holder.bundle.begin_checkpoint("image", options)?;
        let progress = holder.bundle.record().join("progress.json");
        wait_until_clear(|| {
            let now = fs::read_to_string(&progress).unwrap_or_default();
            let is_stored = now.contains("\"phase\":\"store staged\"");
            Ok((!is_stored).then_some(now))
        })?;
        meanwhile(&mut checkpoint)?;
        Ok(checkpoint)
    })();
    stasis.run(&["fsfreeze", "--unfreeze", DISK])?;
    happened
}
