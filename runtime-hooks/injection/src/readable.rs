//! Addresses at which a process has mappings of devices, while its driver has removed these.
//!
//! The driver's checkpoint leaves addresses without rights in their place, and its restore maps the
//! devices there again (measured on driver 580.159). A lock holds back most calls of libcuda, but
//! not all: a call that looks in such a mapping whether a channel has failed goes on, and would end
//! its process. JAX makes it (0.11.2), by a thread that wakes up every few seconds. Zeros mean that
//! no channel has failed: so these addresses are made readable, and have no memory.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nix::libc;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Mapping, for_each_mapping};

use crate::area::in_process;
use crate::prepare::unsigned;
use crate::record::Span;

/// The beginning of such a mapping's path.
const DEVICES: &[u8] = b"/dev/nvidia";
/// JAX has 30 for one GPU.
const MOST: usize = 4096;

/// Finds the mappings of NVIDIA's devices in a process, in the order of their addresses.
///
/// # Errors
/// An error of reading `/proc/PID/maps`; more mappings than any honest program has.
pub fn devices_of(process: &ProcessRef) -> io::Result<Vec<Span>> {
    let mut found: Vec<Span> = Vec::new();
    let too_many = for_each_mapping(process.pid(), |mapping| {
        if !mapping.path.starts_with(DEVICES) {
            return ControlFlow::Continue(());
        }
        let own = span(mapping.start, mapping.end);
        match found
            .last_mut()
            .filter(|last| last.start + last.length == own.start)
        {
            Some(before) => before.length += own.length,
            None => found.push(own),
        }
        match found.len() > MOST {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    match too_many {
        Some(()) => Err(io::Error::other(format!(
            "it has more than {MOST} mappings of devices"
        ))),
        None => Ok(found),
    }
}

/// Returns the parts of these addresses that have no rights, and are only reserved.
///
/// # Errors
/// An error of reading `/proc/PID/maps`.
pub fn unreadable(process: &ProcessRef, devices: &[Span]) -> io::Result<Vec<Span>> {
    let mut found = Vec::new();
    let mut devices = devices.iter().peekable();
    for_each_mapping::<()>(process.pid(), |mapping| {
        while let Some(Span { start, length }) = devices.peek() {
            let end = start.saturating_add(*length);
            let (from, to) = (mapping.start.max(*start), mapping.end.min(end));
            if from < to && is_reserved(&mapping) {
                found.push(span(from, to));
            }
            if mapping.end < end {
                break;
            }
            devices.next();
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn is_reserved(mapping: &Mapping<'_>) -> bool {
    mapping.permissions == *b"---p" && mapping.inode == 0
}

fn span(start: u64, end: u64) -> Span {
    let length = end.saturating_sub(start);
    Span { start, length }
}

/// Makes the parts of these addresses readable that are only reserved. The process has one more
/// child for that time. No call begins later than `limit`, since the driver may have mapped the
/// devices again by then.
///
/// # Errors
/// As `/proc`, [`stasis_remote_call::Proxy::of_running`] and mprotect(2); `TimedOut`.
pub fn make_readable(process: &ProcessRef, devices: &[Span], limit: Duration) -> io::Result<()> {
    let began = Instant::now();
    let unreadable = unreadable(process, devices)?;
    if unreadable.is_empty() {
        return Ok(());
    }
    let read = unsigned(libc::PROT_READ);
    in_process(process, |proxy| {
        unreadable.iter().try_for_each(|Span { start, length }| {
            if began.elapsed() > limit {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let protected = proxy.call(libc::SYS_mprotect, &[*start, *length, read]);
            protected.map(drop)
        })
    })
}
