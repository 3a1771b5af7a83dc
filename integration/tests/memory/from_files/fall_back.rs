//! Processes without a file, or with an unusable one: the driver copies alone, a note has the
//! reason, and CRIU dumps the contents.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::Index;

use super::started;
use crate::debugger::Debugger;

const ALONE: &str = "the driver alone copies the GPU contents of";
const BY_CRIU: &str = "the driver and CRIU move";
const LEAVES: [&str; 1] = ["--leave-running"];

/// A process has one tracer at most: here one that comes when the file is made.
#[test]
fn it_cannot_be_armed_after_the_lock() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let job = started(stasis)?;
    for settings in ["", IN_MEMORY] {
        stasis.set(&stasis.low_level, settings)?;
        let checkpoint = with_files_made(stasis, &job)?;
        let debugger = Debugger::of(stasis, &job.bundle.pid()?.to_string())?;
        stasis.hold_driver("checkpoint job", "armed")?;
        stasis.let_driver_go("made")?;
        stasis.until_driver_is_called()?;
        // CRIU has to trace the process itself.
        drop(debugger);
        stasis.let_driver_go("armed")?;
        went_the_other_way(stasis, &job, checkpoint, "Operation not permitted")
            .context(settings)?;
    }
    job.end()
}

#[test]
fn they_have_grown_past_their_file() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let command = "exec /bin/memcheck 48 10000 grow=48";
    let job = MemoryContainer::start(stasis, "job", command, 10000)?;
    for settings in ["", IN_MEMORY] {
        stasis.set(&stasis.low_level, settings)?;
        let checkpoint = with_files_made(stasis, &job)?;
        // The program takes more memory with each answer.
        job.goes_on()?;
        stasis.let_driver_go("made")?;
        went_the_other_way(stasis, &job, checkpoint, "more than there is room for")
            .context(settings)?;
    }
    job.end()
}

/// All or nothing: a store has one writer.
#[test]
fn one_of_two_processes_is_refused() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let command = "/bin/memcheck 24 10001 & exec /bin/memcheck 48 10000";
    let job = MemoryContainer::start(stasis, "job", command, 10000)?;
    ensure!(stasis.ask_until_up(10001)? == "ok 0");
    let (first, processes) = (job.bundle.pid()?.to_string(), job.processes()?);
    let second = processes.iter().find(|pid| **pid != first);
    let debugger = Debugger::of(stasis, second.context("there is one alone")?)?;
    stasis.hold_driver("checkpoint job", "copies")?;
    let checkpoint = job.bundle.begin_checkpoint("image", &LEAVES)?;
    stasis.until_driver_is_called()?;
    drop(debugger);
    stasis.let_driver_go("copies")?;
    went_the_other_way(stasis, &job, checkpoint, "Operation not permitted")?;
    ensure!(stasis.ask(10001)?.as_deref() == Some("ok 1"));
    job.end()
}

/// Begins a checkpoint that has made the files, and has locked no process yet.
fn with_files_made(stasis: &StasisHost, job: &MemoryContainer<'_>) -> Result<Child> {
    stasis.hold_driver("lock job", "made")?;
    let checkpoint = job.bundle.begin_checkpoint("image", &LEAVES)?;
    stasis.until_driver_is_called()?;
    Ok(checkpoint)
}

/// Checks that CRIU dumped the contents, and that the job goes on from there and from its image.
fn went_the_other_way(
    stasis: &StasisHost,
    job: &MemoryContainer<'_>,
    checkpoint: Child,
    why: &str,
) -> Result<()> {
    let output = checkpoint.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    stasis.inject("")?;
    let notes = stasis.operation("checkpoint")?["notes"].to_string();
    assert_contains(&notes, &[ALONE, BY_CRIU, why]);
    let index = Index::read(&job.bundle.image_path("image"))?;
    ensure!(index.is_none(), "some went through files");
    let next = job.next();
    job.goes_on()?;
    stasis.nothing_to_put_right()?;
    job.end()?;
    job.bundle.restore("image")?;
    job.is_back_at(next);
    job.goes_on()
}
