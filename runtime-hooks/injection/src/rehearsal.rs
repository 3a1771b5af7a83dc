//! Asks a process whether its GPU contents can come back, while it still has them.
//!
//! The driver's own mapping is shared; the contents come back private and writable: RLIMIT_DATA
//! counts that, and so does the kernel's commit limit (vm.overcommit_memory = 2). A security module
//! may refuse it as well.

use nix::libc;
use stasis_linux::ProcessRef;

use crate::area::{in_process, make};
use crate::error::InjectionError;
use crate::prepare::{map, unsigned};

/// Has a process reserve as many bytes as its contents have, of the kind of memory that they come
/// back as, and unmap them again. In between, it calls `meanwhile`: if that asks the next process,
/// the needs of all processes are reserved at the same time.
///
/// A kill meanwhile may leave a range of addresses without memory in the process.
///
/// # Errors
/// [`InjectionError::Rehearsal`]: the process may not have that memory (mprotect(2): ENOMEM), or as
/// [`Proxy::of_running`] and mmap(2). Or an error of `meanwhile`.
///
/// [`Proxy::of_running`]: stasis_remote_call::Proxy::of_running
pub fn rehearse(
    process: &ProcessRef,
    bytes: u64,
    meanwhile: impl FnOnce() -> Result<(), InjectionError>,
) -> Result<(), InjectionError> {
    let others = in_process(process, |proxy| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = map(proxy, 0, bytes, libc::PROT_NONE, flags)?;
        // As contents come back: first without rights, or else a process that locks all its memory
        // (mlockall(2)) would get all pages.
        let everything = unsigned(libc::PROT_READ | libc::PROT_WRITE);
        let allowed = make(
            proxy,
            &[
                (libc::SYS_munlock, [start, bytes, 0, 0, 0, 0]),
                (libc::SYS_mprotect, [start, bytes, everything, 0, 0, 0]),
            ],
        );
        let others = allowed.map(|()| meanwhile());
        proxy.call(libc::SYS_munmap, &[start, bytes])?;
        others
    });
    others.map_err(InjectionError::Rehearsal)?
}
