//! A process is killed while it is being checkpointed: nothing is left of the checkpoint, and an
//! earlier image in the same directory is good.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::{Inventory, MemoryContainer, difference};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::cut_off::{IN_THE_DUMP, criu_stands};
use super::{has_holes, started};
use crate::half_copied::{HALF, hold_halfway, until_half_copied};
use crate::suspended::in_file;

/// The progress of the checkpoint.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The driver's calls lead to our code.
    Armed,
    /// The driver copies.
    HalfCopied,
    /// CRIU has stopped the process.
    Detached,
    /// The contents are mapped again, and the driver is to take them.
    MappedBack,
}

const STEPS: [Step; 4] = [
    Step::Armed,
    Step::HalfCopied,
    Step::Detached,
    Step::MappedBack,
];

#[test]
fn at_each_step() -> Result<()> {
    ends_at_each_step(HostKind::trixie()?, "")
}

#[test]
fn at_each_step_where_they_become_an_image() -> Result<()> {
    ends_at_each_step(HostKind::sid_v2()?, IN_MEMORY)
}

fn ends_at_each_step(kind: HostKind, settings: &str) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let holder = started(stasis)?;
    holder.bundle.checkpoint("image", &[])?;
    let mut image = holder.next();
    holder.bundle.delete()?;
    let before = stasis.inventory()?;
    for step in STEPS {
        let name = || format!("it was killed when {step:?}");
        holder.bundle.restore("image")?;
        holder.is_back_at(image);
        holder.goes_on().with_context(name)?;
        let message = killed_at(stasis, &holder, step).with_context(name)?;
        assert_contains(&message, &["the container has ended meanwhile"]);
        if let Step::MappedBack = step {
            assert_contains(&message, &["the image is complete and restores"]);
            image = holder.next();
        }
        holder.bundle.delete().with_context(name)?;
        stasis.nothing_to_put_right().with_context(name)?;
        nothing_left(stasis, &before, step).with_context(name)?;
        has_holes(&holder, "image").with_context(name)?;
    }
    holder.bundle.restore("image")?;
    holder.is_back_at(image);
    holder.goes_on()?;
    holder.end()
}

/// Waits until nothing is left. Staged contents may still be stored. A new image has contents of
/// its own, and the earlier image's contents, which lie apart, are left to `stasis gc`.
fn nothing_left(stasis: &StasisHost, before: &Inventory, step: Step) -> Result<()> {
    let counted = |inventory: &Inventory| inventory["stored"].len();
    let is_apart = |path: &&String| path.contains("/run/contents/");
    let replaced = before["stored"].iter().filter(is_apart).count();
    wait_until_clear(|| {
        let mut now = stasis.inventory()?;
        if let Step::MappedBack = step
            && counted(&now) == counted(before) + replaced
        {
            now.insert("stored", before["stored"].clone());
        }
        Ok(difference(before, &now))
    })
}

/// Returns the message of the checkpoint, which fails.
fn killed_at(stasis: &StasisHost, holder: &MemoryContainer<'_>, step: Step) -> Result<String> {
    let checkpoint = begun(stasis, holder, step)?;
    let target = holder.bundle.pid()?.to_string();
    stasis.run(&["kill", "-KILL", &target])?;
    match step {
        Step::Armed | Step::MappedBack => stasis.let_driver_go("step")?,
        Step::HalfCopied => stasis.let_driver_go(HALF)?,
        Step::Detached => drop(stasis.run(&["pkill", "-CONT", "-x", "criu"])?),
    }
    let output = checkpoint.wait_with_output()?;
    stasis.inject("")?;
    ensure!(!output.status.success(), "its process was killed");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Begins a checkpoint that waits at this step.
fn begun(stasis: &StasisHost, holder: &MemoryContainer<'_>, step: Step) -> Result<Child> {
    match step {
        Step::Armed => stasis.hold_driver("checkpoint job", "step")?,
        Step::HalfCopied => hold_halfway(stasis, "checkpoint job")?,
        Step::Detached => holder.inject(IN_THE_DUMP)?,
        Step::MappedBack => stasis.hold_driver("restore job", "step")?,
    }
    let checkpoint = holder
        .bundle
        .begin_checkpoint("image", &["--leave-running"])?;
    match step {
        Step::Armed => stasis.until_driver_is_called()?,
        Step::HalfCopied => until_half_copied(stasis, &holder.bundle)?,
        Step::Detached => {
            wait_until_clear(|| criu_stands(stasis))?;
            holder.inject("")?;
            ensure!(in_file(stasis, &holder.bundle)? == 0, "they are not away");
        }
        Step::MappedBack => stasis.until_driver_is_called()?,
    }
    if let Step::Armed | Step::HalfCopied = step {
        ensure!(!holder.workers()?.is_empty(), "nothing is armed");
    }
    Ok(checkpoint)
}
