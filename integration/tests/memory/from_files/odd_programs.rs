//! Programs that hinder nothing, whatever they do themselves.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::has_holes;
use crate::suspended::seen;

#[test]
fn all_symbols_are_bound_at_once() -> Result<()> {
    goes_through_files(
        HostKind::trixie()?,
        "LD_BIND_NOW=1 exec /bin/memcheck 48 10000",
    )
}

/// Mappings that stasis makes in them must not be locked into memory.
#[test]
fn all_memory_is_locked() -> Result<()> {
    goes_through_files(HostKind::sid_v2()?, "exec /bin/memcheck 48 10000 locked")
}

/// A program sees no child but its own.
#[test]
fn children_are_waited_for() -> Result<()> {
    goes_through_files(HostKind::trixie()?, "exec /bin/memcheck 48 10000 waits")
}

/// A program that waits for children that send no signal (`__WALL`) reaps some of ours.
#[test]
fn every_child_is_taken() -> Result<()> {
    goes_through_files(HostKind::sid_v2()?, "exec /bin/memcheck 48 10000 takes")
}

/// Contents that come back count as its data; the driver's mappings do not.
#[test]
fn its_data_is_limited() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let job = MemoryContainer::start(stasis, "job", "exec /bin/memcheck 48 10000", 10000)?;
    job.bundle.checkpoint("first", &["--leave-running"])?;
    job.goes_on()?;
    let limit = |limit: &str| {
        let (pid, limit) = (job.bundle.pid()?.to_string(), format!("--data={limit}"));
        stasis.run(&["prlimit", "--pid", &pid, &limit])
    };
    for settings in ["", IN_MEMORY] {
        stasis.set(&stasis.low_level, settings)?;
        let before = seen(stasis, &job.bundle)?;
        limit(&format!(
            "{}:unlimited",
            data_of(stasis, &job)? + (24 << 20)
        ))?;
        let options = &["--leave-running"];
        let message = job.bundle.checkpoint_fails("refused", options)?;
        assert_contains(
            &message,
            &["RLIMIT_DATA", "runs on as before, with its GPU"],
        );
        limit("unlimited")?;
        job.goes_on().context(settings)?;
        ensure!(seen(stasis, &job.bundle)? == before, "it is not as before");
        job.bundle.checkpoint("taken", options)?;
        job.goes_on().context(settings)?;
    }
    job.end()
}

/// Returns the bytes that RLIMIT_DATA counts.
fn data_of(stasis: &StasisHost, job: &MemoryContainer<'_>) -> Result<u64> {
    let status = format!("/proc/{}/status", job.bundle.pid()?);
    let status = fs::read_to_string(stasis.path(status))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = kib.context("no VmData")?.trim().trim_end_matches(" kB");
    Ok(kib.parse::<u64>()? << 10)
}

fn goes_through_files(kind: HostKind, command: &str) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let bundle = Bundle::make(stasis, "job", &["/bin/sh", "-c", command])?;
    bundle.change(|spec| {
        for set in ["bounding", "effective", "permitted"] {
            let set = spec["process"]["capabilities"][set].as_array_mut();
            set.into_iter()
                .for_each(|set| set.push(json!("CAP_IPC_LOCK")));
        }
    })?;
    let job = MemoryContainer::of(stasis, bundle, 10000)?;
    // A thread of the program gets memory of its own with its first answer.
    job.bundle.checkpoint("first", &["--leave-running"])?;
    job.goes_on()?;
    for settings in ["", IN_MEMORY] {
        stasis.set(&stasis.low_level, settings)?;
        let before = seen(stasis, &job.bundle)?;
        job.bundle.checkpoint("goes-on", &["--leave-running"])?;
        has_holes(&job, "goes-on").context(settings)?;
        job.goes_on().context(settings)?;
        ensure!(seen(stasis, &job.bundle)? == before, "it is not as before");
        job.bundle.checkpoint("ends", &[])?;
        job.bundle.restore("ends")?;
        job.goes_on().context(settings)?;
    }
    job.end()
}
