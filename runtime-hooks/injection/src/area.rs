//! Areas of a process's memory: how they are mapped, and calls that change them.

use std::io;
use std::ops::ControlFlow;

use nix::libc;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{Mapping, for_each_mapping};
use stasis_remote_call::{Proxy, Shared};

use crate::record::Span;

/// A system call with its arguments; arguments that it does not have are 0.
pub(crate) type Call = (libc::c_long, [u64; 6]);

/// Has a process make system calls through a proxy. The process has one more child for that time.
pub(crate) fn in_process<T>(
    process: &ProcessRef,
    work: impl FnOnce(&mut Proxy) -> io::Result<T>,
) -> io::Result<T> {
    let mut proxy = Proxy::of_running(process.pid(), Shared::Memory, || process.is_gone())?;
    let result = work(&mut proxy);
    proxy.end()?;
    result
}

/// Makes calls in their order, up to one that fails.
pub(crate) fn make(proxy: &mut Proxy, calls: &[Call]) -> io::Result<()> {
    let mut calls = calls.iter();
    calls.try_for_each(|(number, arguments)| proxy.call(*number, arguments).map(drop))
}

/// Whether all of it lies in mappings that suit, which may reach further: the kernel joins
/// neighbours that are alike.
pub(crate) fn is_all(
    process: &ProcessRef,
    Span { start, length }: Span,
    suits: impl Fn(&Mapping<'_>) -> bool,
) -> io::Result<bool> {
    let end = start.saturating_add(length);
    let mut at = start;
    for_each_mapping(process.pid(), |mapping| {
        if mapping.end <= at {
            return ControlFlow::Continue(());
        }
        if at >= end || mapping.start > at || !suits(&mapping) {
            return ControlFlow::Break(());
        }
        at = mapping.end;
        ControlFlow::Continue(())
    })?;
    Ok(length > 0 && at >= end && !process.is_gone())
}
