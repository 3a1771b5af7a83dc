//! The NVIDIA device nodes of a process.

use std::fs;
use std::ops::ControlFlow;

use anyhow::{Context, Result, ensure};
use stasis_gpu::cuda::GpuMap;
use stasis_injection::{Span, devices_of, make_readable, unreadable};
use stasis_linux::ProcessRef;
use stasis_linux::procfs::for_each_mapping;

use crate::by_pid::ByPid;
use crate::workload::Workload;
use crate::{PATIENCE, driver, lock};

/// A thread that reads these addresses meanwhile would end the process, so the engine makes them
/// readable. Unreserved ones are unmapped: driver 580.159 unmaps one range from the second time on.
#[test]
fn where_devices_were_is_reserved_and_they_come_back_whatever_is_there() -> Result<()> {
    let memcheck = Workload::memcheck(64)?;
    assert_eq!(memcheck.ask()?, "ok 0");
    let pid = memcheck.pid();
    let process = ProcessRef::open(pid)?.context("it has ended")?;
    for generation in 1..=3 {
        let (devices, before) = (devices_of(&process)?, mappings(pid)?);
        ensure!(!devices.is_empty());
        lock(pid)?;
        assert_eq!(unreadable(&process, &devices)?, [], "while it is locked");
        driver().checkpoint(pid)?;
        let (had, is) = (total(&devices), total(&unreadable(&process, &devices)?));
        assert!(is == had || generation > 1 && is > had / 2, "{is} of {had}");
        assert_eq!(
            is,
            total(&mapped(&process, &devices)?),
            "something else is there"
        );
        make_readable(&process, &devices, PATIENCE)?;
        assert_eq!(unreadable(&process, &devices)?, []);
        driver().restore(pid, &GpuMap::identity())?;
        driver().unlock(pid)?;
        assert_eq!(addresses(&mappings(pid)?), addresses(&before));
        assert_eq!(memcheck.ask()?, format!("ok {generation}"));
    }
    Ok(())
}

fn total(spans: &[Span]) -> u64 {
    spans.iter().map(|span| span.length).sum()
}

/// Returns the mapped parts of these addresses.
fn mapped(process: &ProcessRef, spans: &[Span]) -> Result<Vec<Span>> {
    let mut found = Vec::new();
    for_each_mapping::<()>(process.pid(), |mapping| {
        for span in spans {
            let start = mapping.start.max(span.start);
            let end = mapping.end.min(span.start + span.length);
            let length = end.saturating_sub(start);
            found.extend((length > 0).then_some(Span { start, length }));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn addresses(mappings: &[String]) -> Vec<&str> {
    let range = |line| str::split(line, ' ').next();
    mappings.iter().filter_map(|line| range(line)).collect()
}

/// Returns the process's mappings of nodes, as lines of /proc/PID/maps.
pub(crate) fn mappings(pid: i32) -> Result<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps
        .lines()
        .filter(|line| is_node(line))
        .map(str::to_owned)
        .collect())
}

/// Returns the nodes that the process has descriptors of.
pub(crate) fn descriptors(pid: i32) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let target = fs::read_link(descriptor?.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if is_node(&target) {
            found.push(target.into_owned());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Whether the process has a descriptor or a mapping of a node.
pub(crate) fn holds_device(pid: i32) -> Result<bool> {
    Ok(!mappings(pid)?.is_empty() || !descriptors(pid)?.is_empty())
}

fn is_node(text: &str) -> bool {
    text.contains("/nvidia") && !text.contains(".so")
}
