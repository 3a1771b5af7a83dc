//! Contents whose file is no longer needed: a process that has kept the file finds nothing in it.

use std::fs::File;

use anyhow::{Context, Result, ensure};
use stasis_injection::{contents_of, file_of};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_linux::ProcessRef;

use super::{MIB, has_holes, started};
use crate::limits::driver_alone;
use crate::suspended::toggled;

#[test]
fn while_the_container_goes_on() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    // Memory has no room for packs, so the files have no names.
    stasis.host.mount_memory(MIB, "/run/stasis/staging")?;
    let holder = started(stasis)?;

    toggle(stasis)?;
    let suspended = kept(stasis, &holder)?;
    toggle(stasis)?;
    has_nothing(&suspended).context("resumed")?;
    holder.goes_on()?;

    let checkpointed = kept_in(stasis, &holder, || {
        holder
            .bundle
            .begin_checkpoint("goes-on", &["--leave-running"])
    })?;
    has_nothing(&checkpointed).context("after a checkpoint")?;
    has_holes(&holder, "goes-on")?;
    holder.goes_on()?;

    toggle(stasis)?;
    let private = kept(stasis, &holder)?;
    driver_alone(stasis, &holder.bundle)?;
    holder.bundle.checkpoint("by-criu", &["--leave-running"])?;
    has_nothing(&private).context("made private")?;
    stasis.set("runc", "")?;
    toggle(stasis)?;
    holder.goes_on()?;
    holder.end()
}

#[test]
fn once_it_has_ended_and_when_it_is_restored() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let holder = started(stasis)?;
    toggle(stasis)?;
    let ended = kept(stasis, &holder)?;
    // The contents are given back, and needed.
    holder.bundle.checkpoint("stays", &["--leave-running"])?;
    ensure!(ended.metadata()?.len() >= 48 * MIB, "they are gone");
    holder.bundle.checkpoint("ends", &[])?;
    wait_until_clear(|| Ok(has_nothing(&ended).err().map(|error| error.to_string())))?;
    // A restore takes the contents out of their file.
    holder.bundle.restore("ends")?;
    holder.goes_on()?;
    holder.bundle.checkpoint("runs", &[])?;
    let restored = kept_in(stasis, &holder, || holder.bundle.begin_restore("runs"))?;
    has_nothing(&restored).context("restored")?;
    holder.goes_on()?;
    holder.end()
}

/// Returns the file of the contents at the next driver restore of the begun operation.
fn kept_in(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    begin: impl FnOnce() -> Result<std::process::Child>,
) -> Result<File> {
    stasis.hold_driver("restore job", "restoring")?;
    let begun = begin()?;
    stasis.until_driver_is_called()?;
    let kept = kept(stasis, holder)?;
    stasis.let_driver_go("restoring")?;
    let output = begun.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(kept)
}

/// Opens the file of the contents, as a process of the container may have done.
fn kept(stasis: &StasisHost, holder: &MemoryContainer<'_>) -> Result<File> {
    let pid = stasis.host.outside(&holder.bundle.pid()?.to_string())?;
    let process = ProcessRef::open(pid.as_raw())?.context("it has ended")?;
    let contents = contents_of(&process)?;
    let contents = contents.first().context("no contents")?;
    let kept = file_of(&process, *contents)?.file;
    ensure!(kept.metadata()?.len() >= 48 * MIB, "they are elsewhere");
    Ok(kept)
}

fn has_nothing(kept: &File) -> Result<()> {
    let bytes = kept.metadata()?.len();
    ensure!(bytes == 0, "{bytes} bytes are kept");
    Ok(())
}

fn toggle(stasis: &StasisHost) -> Result<()> {
    let output = toggled(stasis, "job").output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}
