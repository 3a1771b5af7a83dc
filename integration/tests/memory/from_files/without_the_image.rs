//! Containers whose callers have paused them for a checkpoint, and remove its image before they
//! resume them: the process that holds the contents has the only copy.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, PROGRAM, StasisHost};

use super::paused::{nobody_holds, paused};
use super::{HOLDS, started};
use crate::suspended::{seen, until_dead};

/// The directory of [`IN_MEMORY`].
const APART: &str = "/run/contents";
const WANTED: &str = "gpu-contents-away.wanted";

/// The killed one of the processes that hold the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    /// The process that has stored the contents, and gives them back.
    Holds,
    /// The process that the first one has started, and that waits for its end.
    StandsBy,
    /// The first one, after the request to give the contents back.
    IsAsked,
}

#[test]
fn whoever_is_killed_they_come_back() -> Result<()> {
    whoever_is_killed(HostKind::sid_v2()?, "")
}

#[test]
fn whoever_is_killed_they_come_back_as_an_image() -> Result<()> {
    whoever_is_killed(HostKind::trixie()?, IN_MEMORY)
}

fn whoever_is_killed(kind: HostKind, settings: &str) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    for killed in [Killed::Holds, Killed::StandsBy, Killed::IsAsked] {
        let before = seen(stasis, &holder.bundle)?;
        paused(stasis, &holder, "removed")?;
        removed(stasis, &holder)?;
        resumed_without(stasis, &holder, killed).with_context(|| format!("{killed:?}"))?;
        holder.goes_on().with_context(|| format!("{killed:?}"))?;
        assert_eq!(seen(stasis, &holder.bundle)?, before, "{killed:?}");
        stasis.nothing_to_put_right()?;
        wait_until_clear(|| nobody_holds(stasis))?;
    }
    holder.end()
}

/// Removes the image, and then its contents that lie apart: `stasis gc` leaves them.
fn removed(stasis: &StasisHost, holder: &MemoryContainer<'_>) -> Result<()> {
    fs::remove_dir_all(holder.bundle.image_path("removed"))?;
    let mut gc = stasis.command(PROGRAM);
    let output = gc.args(["gc", "--contents", "--yes", "--json"]).output()?;
    let said: Value = serde_json::from_slice(&output.stdout)?;
    for left in said["items"].as_array().context("no items")? {
        let user = format!("GPU contents of container {} are in it", holder.bundle.id);
        assert_contains(&left.to_string(), &[&user]);
        let id = left["image_id"].as_str().context("no id")?;
        fs::remove_dir_all(stasis.path(format!("{APART}/{id}")))?;
    }
    Ok(())
}

fn resumed_without(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    killed: Killed,
) -> Result<()> {
    let (holds, stands_by) = who_holds(stasis)?;
    let victim = match killed {
        Killed::Holds | Killed::IsAsked => holds,
        Killed::StandsBy => stands_by.context("nobody stands by")?,
    };
    if killed != Killed::IsAsked {
        stasis.run(&["kill", "-KILL", &victim])?;
        wait_until_clear(|| is_alive(stasis, &victim))?;
        return holder.bundle.resume();
    }
    stasis.run(&["kill", "-STOP", &victim])?;
    let mut resume = holder.bundle.operation(&["resume", &holder.bundle.id])?;
    let mut resume = resume.spawn()?;
    let wanted = holder.bundle.record().join(WANTED);
    wait_until_clear(|| Ok((!wanted.exists()).then(|| "nobody wants them".to_owned())))?;
    stasis.run(&["kill", "-KILL", &victim])?;
    ensure!(resume.wait()?.success(), "the resume has failed");
    Ok(())
}

/// Returns the process that holds the contents, and the one that stands by.
fn who_holds(stasis: &StasisHost) -> Result<(String, Option<String>)> {
    let all = stasis.run_for_text(&["pgrep", "-x", HOLDS])?;
    let all: Vec<&str> = all.lines().collect();
    let mut holds = Vec::new();
    let mut stands_by = None;
    for pid in &all {
        let parent = stasis.run_for_text(&["ps", "-o", "ppid=", pid])?;
        match all.contains(&parent.trim()) {
            true => stands_by = Some((*pid).to_owned()),
            false => holds.push((*pid).to_owned()),
        }
    }
    ensure!(holds.len() == 1, "{holds:?} hold them");
    Ok((holds.remove(0), stands_by))
}

/// Returns the process's state, if it has not ended.
fn is_alive(stasis: &StasisHost, pid: &str) -> Result<Option<String>> {
    let state = stasis.run_for_text(&["ps", "-o", "stat=", pid]);
    Ok(state.ok().filter(|state| !state.starts_with('Z')))
}

/// Each resume reports the loss, and no process goes on trying. The loss is not final: an image may
/// be on a disk that is absent now.
#[test]
fn what_nobody_has_any_more_is_lost_until_its_image_is_there_again() -> Result<()> {
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let holder = started(stasis)?;
    paused(stasis, &holder, "image")?;
    let image = holder.bundle.image_path("image");
    let elsewhere = holder.bundle.image_path("elsewhere");
    fs::rename(&image, &elsewhere)?;
    stasis.run(&["pkill", "-KILL", "-x", HOLDS])?;
    until_dead(stasis, HOLDS)?;
    for _ in 0..2 {
        let resume = holder
            .bundle
            .runtime(&["resume", &holder.bundle.id])
            .output()?;
        let said = String::from_utf8_lossy(&resume.stderr);
        ensure!(!resume.status.success(), "it has succeeded");
        assert_contains(
            &said,
            &[
                "gpu restore of process",
                "its GPU contents are lost",
                "kill it",
                "[memory-not-returned]",
            ],
        );
        let logged = stasis.operation("resume")?;
        assert_eq!(logged["state"], "lost", "{logged}");
        ensure!(stasis.keepers().is_empty(), "somebody tries again");
        // The loss stays recorded, and the driver is not asked to restore it.
        let recovered = stasis.run_for_text(&[PROGRAM, "recover"])?;
        ensure!(recovered == "nothing to recover", "{recovered}");
        let pid = holder.bundle.pid()?.to_string();
        let alone = stasis
            .command(CUDA_CHECKPOINT)
            .args(["--toggle", "--pid", &pid])
            .output()?;
        let said = String::from_utf8_lossy(&alone.stderr);
        assert_contains(&said, &["gpu restore", "it is checkpointed now"]);
    }
    fs::rename(&elsewhere, &image)?;
    // The low-level runtime has resumed it already.
    let _ = holder
        .bundle
        .runtime(&["resume", &holder.bundle.id])
        .output()?;
    stasis.nothing_to_put_right()?;
    holder.goes_on()?;
    holder.end()
}
