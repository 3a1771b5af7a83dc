//! Containers whose callers pause them for a checkpoint.

use anyhow::{Result, ensure};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

use super::{HOLDS, has_holes, started};
use crate::suspended::{in_file, seen};

/// No process of a frozen container can map anything: the contents come back at its resume, and the
/// caller's other operations find the container as always.
#[test]
fn they_come_back_at_its_resume() -> Result<()> {
    resumed(HostKind::trixie()?, "")
}

#[test]
fn they_come_back_as_an_image() -> Result<()> {
    resumed(HostKind::sid_v2()?, IN_MEMORY)
}

fn resumed(kind: HostKind, settings: &str) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    let before = seen(stasis, &holder.bundle)?;
    paused(stasis, &holder, "once")?;
    holder.bundle.resume()?;
    holder.goes_on()?;
    assert_eq!(seen(stasis, &holder.bundle)?, before);

    paused(stasis, &holder, "again")?;
    holder.bundle.checkpoint("twice", &["--leave-running"])?;
    ensure!(in_file(stasis, &holder.bundle)? == 0, "they are not away");
    holder.bundle.resume()?;
    holder.goes_on()?;
    assert_eq!(seen(stasis, &holder.bundle)?, before);

    paused(stasis, &holder, "who-holds-them-is-killed")?;
    stasis.run(&["pkill", "-KILL", "-x", HOLDS])?;
    holder.bundle.resume()?;
    holder.goes_on()?;
    assert_eq!(seen(stasis, &holder.bundle)?, before);

    paused(stasis, &holder, "deleted")?;
    let next = holder.next();
    holder.bundle.delete()?;
    wait_until_clear(|| nobody_holds(stasis))?;
    stasis.nothing_to_put_right()?;
    for image in ["twice", "deleted"] {
        has_holes(&holder, image)?;
    }
    holder.bundle.restore("deleted")?;
    holder.is_back_at(next);
    holder.goes_on()?;
    paused(stasis, &holder, "ends")?;
    holder.bundle.checkpoint("ends", &[])?;
    holder.bundle.restore("ends")?;
    holder.goes_on()?;
    holder.end()
}

/// Pauses the container, and checkpoints it.
pub(super) fn paused(stasis: &StasisHost, holder: &MemoryContainer<'_>, image: &str) -> Result<()> {
    holder.bundle.pause()?;
    holder.bundle.checkpoint(image, &["--leave-running"])?;
    assert_eq!(holder.bundle.status()?, "paused");
    ensure!(in_file(stasis, &holder.bundle)? == 0, "they are not away");
    Ok(())
}

/// Returns the list of processes as long as one holds contents.
pub(super) fn nobody_holds(stasis: &StasisHost) -> Result<Option<String>> {
    let processes = stasis.run_for_text(&["ps", "-eo", "comm="])?;
    let mut lines = processes.lines();
    Ok(lines.any(|line| line == HOLDS).then_some(processes.clone()))
}
