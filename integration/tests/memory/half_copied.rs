//! A copying process is killed when half has been copied: the driver's thread goes on alone.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::Contents;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use crate::suspended::{in_file, seen, toggled};

const MIB: u64 = 1 << 20;
const COPIER: &str = "stasis-gpu-copy";
/// The gate that holds the driver in the middle.
pub(crate) const HALF: &str = "half";

/// The process that is killed.
#[derive(Debug, Clone, Copy)]
enum Killed {
    /// The process that directs the driver's calls to our code, and back.
    Copier,
    /// A process that copies with the driver's thread.
    Worker,
}

#[test]
fn in_a_checkpoint() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let job = started(stasis)?;
    for place in [Contents::InImage, Contents::InMemory] {
        stasis.set(&stasis.low_level, place.setting())?;
        for killed in [Killed::Copier, Killed::Worker] {
            let name = || format!("{killed:?}, {place:?}");
            let before = seen(stasis, &job.bundle)?;
            checkpointed_without(stasis, &job, killed).with_context(name)?;
            job.goes_on().with_context(name)?;
            assert_eq!(seen(stasis, &job.bundle)?, before, "{}", name());
            stasis.nothing_to_put_right()?;
            // The stored image is whole, and the next checkpoint works.
            job.end()?;
            job.bundle.restore("killed")?;
            job.is_back_at(job.next() - 1);
            job.goes_on().with_context(name)?;
            job.bundle.checkpoint("next", &["--leave-running"])?;
            job.goes_on()?;
        }
    }
    job.end()
}

fn checkpointed_without(
    stasis: &StasisHost,
    job: &MemoryContainer<'_>,
    killed: Killed,
) -> Result<()> {
    hold_halfway(stasis, "checkpoint job")?;
    let checkpoint = job
        .bundle
        .begin_checkpoint("killed", &["--leave-running"])?;
    until_half_copied(stasis, &job.bundle)?;
    kill(stasis, job, killed)?;
    stasis.let_driver_go(HALF)?;
    succeeds(checkpoint)?;
    stasis.inject("")
}

#[test]
fn in_a_suspend_and_a_resume() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let job = started(stasis)?;
    for killed in [Killed::Copier, Killed::Worker] {
        let before = seen(stasis, &job.bundle)?;
        for call in ["checkpoint", "restore"] {
            hold_halfway(stasis, &format!("{call} job"))?;
            let toggle = toggled(stasis, "job").spawn()?;
            until_half_copied(stasis, &job.bundle)?;
            kill(stasis, &job, killed)?;
            stasis.let_driver_go(HALF)?;
            let said = succeeds(toggle)?;
            if let Killed::Copier = killed {
                assert_contains(&said, &["could not be put back at once", "it is now"]);
            }
            let suspended = call == "checkpoint";
            ensure!((in_file(stasis, &job.bundle)? > 0) == suspended);
            ensure!(job.workers()?.is_empty(), "workers are left");
        }
        stasis.inject("")?;
        job.goes_on().with_context(|| format!("{killed:?}"))?;
        assert_eq!(seen(stasis, &job.bundle)?, before, "{killed:?}");
        stasis.nothing_to_put_right()?;
    }
    job.bundle.checkpoint("next", &[])?;
    job.bundle.restore("next")?;
    job.goes_on()?;
    job.end()
}

/// A thread of the program gets memory of its own with its first answer.
fn started(stasis: &StasisHost) -> Result<MemoryContainer<'_>> {
    let job = MemoryContainer::start(stasis, "job", "exec /bin/memcheck 48 10000", 10000)?;
    job.bundle.checkpoint("first", &["--leave-running"])?;
    job.goes_on()?;
    Ok(job)
}

/// Has the next such call wait when half is copied, until the gate [`HALF`] releases the driver.
pub(crate) fn hold_halfway(stasis: &StasisHost, call: &str) -> Result<()> {
    stasis.write(&format!("/run/stasis-standin/{HALF}"), "")?;
    stasis.inject(&format!("{call} half:{HALF} 1"))
}

/// Waits until the driver has moved some of 48 MiB, and has more to move.
pub(crate) fn until_half_copied(stasis: &StasisHost, bundle: &Bundle<'_>) -> Result<()> {
    let pid = bundle.pid()?;
    stasis.until_driver_is_called()?;
    wait_until_clear(|| {
        let now = on_gpu(stasis, pid)?;
        let half = 4 * MIB..44 * MIB;
        Ok((!half.contains(&now)).then(|| format!("{now} bytes are on the GPU")))
    })
}

/// Returns the bytes in device memory: the stand-in maps it at addresses of its own (`memory.c`),
/// with no more pages than are on the device.
fn on_gpu(stasis: &StasisHost, pid: i64) -> Result<u64> {
    let smaps = ["cat", &format!("/proc/{pid}/smaps")];
    let (mut is_device, mut kib) = (false, 0);
    for line in stasis.run_for_text(&smaps)?.lines() {
        if line.starts_with(|first: char| first.is_ascii_hexdigit() && !first.is_uppercase()) {
            is_device = line.starts_with("6000");
        }
        let resident = line
            .strip_prefix("Rss:")
            .and_then(|rest| rest.strip_suffix("kB"));
        if let (true, Some(resident)) = (is_device, resident) {
            kib += resident.trim().parse::<u64>()?;
        }
    }
    Ok(kib << 10)
}

fn kill(stasis: &StasisHost, job: &MemoryContainer<'_>, killed: Killed) -> Result<()> {
    match killed {
        Killed::Copier => stasis.run(&["pkill", "-KILL", "-x", COPIER])?,
        Killed::Worker => {
            let workers = job.workers()?;
            let worker = workers.first().context("nobody copies with it")?;
            stasis.run(&["kill", "-KILL", worker])?
        }
    };
    Ok(())
}

/// Returns the standard error of an operation that has to succeed.
fn succeeds(operation: Child) -> Result<String> {
    let output = operation.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}");
    Ok(said)
}
