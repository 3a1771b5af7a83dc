//! Processes go on before their contents are on a disk, and the image is reported good afterwards.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::memory_container::{MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::{has_holes, started};
use crate::suspended::{in_file, seen};

const ON_DISK: &str = "/var/lib/stasis/memory";
const IN_RAM: &str = "/run/stasis/memory";
const BYTES: u64 = 256 << 20;

#[test]
fn they_go_on_before_a_disk_has_them() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid_v2()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
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
    ensure!(names_in(&stasis.host.path(IN_RAM))?.is_empty(), "in memory");
    holder.goes_on()?;
    holder.end()?;
    holder.bundle.restore("image")?;
    holder.is_back_at(next);
    holder.goes_on()?;
    // What has not changed is not stored again.
    holder.bundle.checkpoint("again", &["--leave-running"])?;
    let stores = names_in(&stasis.host.path(ON_DISK))?;
    ensure!(stores.len() == 3, "two and lost+found, not {stores:?}");
    holder.goes_on()?;
    holder.end()
}

#[test]
fn nothing_stays_of_what_was_not_stored() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    let holder = with_a_disk(stasis)?;
    let (before, inventory) = (seen(stasis, &holder.bundle)?, stasis.inventory()?);
    for signal in ["KILL", "TERM"] {
        let checkpoint = stands_still(stasis, &holder, |_| {
            let name = ["pkill", &format!("-{signal}"), "-x", "stasis-runtime"];
            stasis.host.run(&name).map(drop)
        })?;
        let output = checkpoint.wait_with_output()?;
        ensure!(!output.status.success(), "it has succeeded");
        if signal == "TERM" {
            let says = ["a signal asked for it to end", "runs on as before"];
            assert_contains(&String::from_utf8_lossy(&output.stderr), &says);
        }
        stasis.nothing_to_put_right()?;
        holder.goes_on().context(signal)?;
        holder.nothing_left_of_dump("image")?;
        ensure!(names_in(&stasis.host.path(IN_RAM))?.is_empty(), "{signal}");
        let on_disk = names_in(&stasis.host.path(ON_DISK))?;
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

/// One that was checkpointed before: a thread of it gets memory of its own with its first answer.
fn with_a_disk(stasis: &StasisHost) -> Result<MemoryContainer<'_>> {
    stasis.host.mount_disk(BYTES, ON_DISK)?;
    stasis.set(&stasis.low_level, "bulk_memory.tier = \"disk\"\n")?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    for name in names_in(&stasis.host.path(ON_DISK))? {
        if name != "lost+found" {
            stasis.host.run(&["stasis", "memory", "remove", &name])?;
        }
    }
    Ok(holder)
}

/// Begins a checkpoint, has something happen while the disk takes nothing, and lets it go on.
fn stands_still(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    meanwhile: impl FnOnce(&mut Child) -> Result<()>,
) -> Result<Child> {
    stasis.host.run(&["fsfreeze", "--freeze", ON_DISK])?;
    let happened = (|| {
        let options = &["--leave-running"];
        let mut checkpoint = holder.bundle.begin_checkpoint("image", options)?;
        let progress = holder.bundle.record().join("progress.json");
        wait_until_clear(|| {
            let now = fs::read_to_string(&progress).unwrap_or_default();
            let is_stored = now.contains("\"phase\":\"store in tier\"");
            Ok((!is_stored).then_some(now))
        })?;
        meanwhile(&mut checkpoint)?;
        Ok(checkpoint)
    })();
    stasis.host.run(&["fsfreeze", "--unfreeze", ON_DISK])?;
    happened
}
