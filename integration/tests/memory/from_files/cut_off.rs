//! Processes that fail, or are killed, while the contents are away.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;

use super::{HOLDS, started};
use crate::suspended::{in_file, seen, until_dead};

const OPERATES: &str = "stasis-runtime";
const KEEPER: &str = "stasis-keeper";
/// CRIU has stopped all tasks, and stops itself.
pub(super) const IN_THE_DUMP: &str = "dump:1:stop";

mod whoever_fails_in_the_dump {
    use super::*;

    #[test]
    fn they_come_back() -> Result<()> {
        who_fails_in_the_dump(HostKind::sid_v2()?, "")
    }

    #[test]
    fn they_come_back_as_an_image() -> Result<()> {
        who_fails_in_the_dump(HostKind::trixie()?, IN_MEMORY)
    }
}

fn who_fails_in_the_dump(kind: HostKind, settings: &str) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("good", &["--leave-running"])?;
    holder.goes_on()?;
    let before = seen(stasis, &holder.bundle)?;
    let inventory = stasis.inventory()?;
    for fault in ["dump:1:error", "dump:1:panic", "dump:1:kill"] {
        for pauses in [false, true] {
            holder.inject(fault)?;
            if pauses {
                holder.bundle.pause()?;
            }
            let message = holder.bundle.checkpoint_fails("failed", &[])?;
            assert_contains(&message, &["as before"]);
            if pauses {
                holder.bundle.resume()?;
            }
            holder.inject("")?;
            holder.goes_on().context(fault)?;
            holder.nothing_left_of_dump("failed")?;
            assert_eq!(seen(stasis, &holder.bundle)?, before, "{fault}");
            assert_eq!(stasis.inventory()?, inventory, "{fault}");
        }
    }
    holder.end()
}

mod whoever_is_killed_in_the_dump {
    use super::*;

    #[test]
    fn they_come_back() -> Result<()> {
        who_is_killed_in_the_dump(HostKind::trixie()?, "")
    }

    #[test]
    fn they_come_back_as_an_image() -> Result<()> {
        who_is_killed_in_the_dump(HostKind::sid_v2()?, IN_MEMORY)
    }
}

fn who_is_killed_in_the_dump(kind: HostKind, settings: &str) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let holder = started(stasis)?;
    // A thread of the program gets memory of its own with its first answer.
    holder.bundle.checkpoint("first", &["--leave-running"])?;
    holder.goes_on()?;
    let all = [
        &[HOLDS][..],
        &[OPERATES],
        &[OPERATES, HOLDS],
        &[KEEPER, OPERATES],
        &[KEEPER, OPERATES, HOLDS],
    ];
    for options in [&["--leave-running"][..], &[]] {
        for killed in all {
            let name = || format!("{killed:?} killed {options:?}");
            let before = seen(stasis, &holder.bundle)?;
            let task = holder.bundle.pid()?;
            killed_in_the_dump(stasis, &holder, killed, options).with_context(name)?;
            if holder.bundle.pid()? == task {
                assert_eq!(seen(stasis, &holder.bundle)?, before, "{}", name());
            }
        }
    }
    holder.bundle.checkpoint("after-all", &[])?;
    holder.bundle.restore("after-all")?;
    holder.goes_on()?;
    holder.end()
}

fn killed_in_the_dump(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    killed: &[&str],
    options: &[&str],
) -> Result<()> {
    holder.inject(IN_THE_DUMP)?;
    let image = match killed == [HOLDS] {
        true => "good",
        false => "killed",
    };
    let checkpoint = holder.bundle.begin_checkpoint(image, options)?;
    wait_until_clear(|| criu_stands(stasis))?;
    holder.inject("")?;
    ensure!(in_file(stasis, &holder.bundle)? == 0, "they are not away");
    let names = killed.join("|");
    stasis.run(&["pkill", "-KILL", "-x", &names])?;
    if killed == [HOLDS] {
        stasis.run(&["pkill", "-CONT", "-x", "criu"])?;
        return without_who_held_them(holder, checkpoint, options);
    }
    drop(checkpoint.wait_with_output()?);
    if killed.contains(&KEEPER) {
        // CRIU's caller may have taken it along.
        let kill = "pkill -KILL -x criu || true";
        stasis.run(&["sh", "-c", kill])?;
        until_dead(stasis, &format!("{names}|criu|runc"))?;
        if !killed.contains(&HOLDS) {
            let lock = format!("{}/.stasis-new", holder.bundle.image(image));
            let locked = stasis.run(&["flock", "--nonblock", &lock, "true"]);
            ensure!(locked.is_err(), "another one could write there");
        }
        stasis.run(&[PROGRAM, "recover"])?;
    }
    stasis.nothing_to_put_right()?;
    holder.goes_on()?;
    holder.nothing_left_of_dump("killed")
}

/// The image is good, and processes that go on get their contents from the store.
fn without_who_held_them(
    holder: &MemoryContainer<'_>,
    checkpoint: Child,
    options: &[&str],
) -> Result<()> {
    let output = checkpoint.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    if options.is_empty() {
        holder.bundle.restore("good")?;
    }
    holder.goes_on()
}

/// Returns the list of processes as long as no stopped CRIU is in it.
pub(super) fn criu_stands(stasis: &StasisHost) -> Result<Option<String>> {
    let processes = stasis.run_for_text(&["ps", "-eo", "stat=,comm="])?;
    let stands = |line: &str| line.starts_with('T') && line.ends_with(" criu");
    Ok((!processes.lines().any(stands)).then_some(processes))
}
