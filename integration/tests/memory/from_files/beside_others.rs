//! Contents of a process that are stored while the driver works on another one.

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use super::{HOLDS, MIB};
use crate::suspended::{seen, until_dead};

const OPERATES: &str = "stasis-runtime";
const KEEPER: &str = "stasis-keeper";
/// The port of the process that the driver is late with.
const LATE: u16 = 10001;

#[test]
fn whoever_is_killed_meanwhile() -> Result<()> {
    who_is_killed(HostKind::trixie()?, "")
}

#[test]
fn whoever_is_killed_where_they_become_an_image() -> Result<()> {
    who_is_killed(HostKind::sid_v2()?, IN_MEMORY)
}

fn who_is_killed(kind: HostKind, settings: &str) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let command = format!("STASIS_TAG=late /bin/memcheck 8 {LATE} & exec /bin/memcheck 48 10000");
    let job = MemoryContainer::start(stasis, "job", &command, 10000)?;
    for image in ["first", "second"] {
        // Threads of the programs get memory of their own with their first answers.
        both_go_on(stasis, &job)?;
        job.bundle.checkpoint(image, &["--leave-running"])?;
    }
    both_go_on(stasis, &job)?;
    let before = seen(stasis, &job.bundle)?;
    let inventory = stasis.inventory()?;
    for killed in [
        &[HOLDS][..],
        &[OPERATES],
        &[OPERATES, HOLDS],
        &[KEEPER, OPERATES, HOLDS],
    ] {
        let name = || format!("{killed:?} killed");
        let message = killed_beside(stasis, &job, killed).with_context(name)?;
        if killed == [HOLDS] {
            assert_contains(&message, &["GPU contents", "was killed", "as before"]);
        }
        both_go_on(stasis, &job).with_context(name)?;
        assert_eq!(seen(stasis, &job.bundle)?, before, "{}", name());
        assert_eq!(stasis.inventory()?, inventory, "{}", name());
        job.nothing_left_of_dump("killed").with_context(name)?;
    }
    let next = job.next();
    let message = killed_beside(stasis, &job, &[])?;
    ensure!(message.is_empty(), "{message}");
    job.bundle.restore("killed")?;
    job.is_back_at(next);
    both_go_on(stasis, &job)?;
    job.end()
}

/// Begins a checkpoint in which the driver is late with the small process, kills these processes
/// once the contents of the other are stored, and releases the driver. Returns the messages.
fn killed_beside(
    stasis: &StasisHost,
    job: &MemoryContainer<'_>,
    killed: &[&str],
) -> Result<String> {
    stasis.hold_driver("checkpoint late", "late")?;
    let checkpoint = job.bundle.begin_checkpoint("killed", &[])?;
    stasis.until_driver_is_called()?;
    wait_until_clear(|| {
        let progress = job.bundle.record().join("memory-progress");
        let progress = fs::read_to_string(progress).unwrap_or_default();
        let done = progress.split(' ').next();
        let done = done.and_then(|done| done.parse::<u64>().ok());
        let is_stored = done.is_some_and(|done| done >= 48 * MIB);
        Ok((!is_stored).then(|| format!("stored: {progress}")))
    })?;
    let names = killed.join("|");
    if !killed.is_empty() {
        stasis.run(&["pkill", "-KILL", "-x", &names])?;
    }
    stasis.let_driver_go("late")?;
    let output = checkpoint.wait_with_output()?;
    ensure!(output.status.success() == killed.is_empty());
    if killed.contains(&KEEPER) {
        until_dead(stasis, &names)?;
        stasis.run(&[PROGRAM, "recover"])?;
    }
    stasis.nothing_to_put_right()?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn both_go_on(stasis: &StasisHost, job: &MemoryContainer<'_>) -> Result<()> {
    job.goes_on()?;
    let late = stasis.ask_until_up(LATE)?;
    ensure!(late.starts_with("ok "), "{late}");
    Ok(())
}
