//! Code that every program has anyway: a system call that returns at once, and the end of a signal
//! handler.

use std::io;
use std::ops::Range;

use memchr::memmem;
use nix::unistd::Pid;

use crate::memory;

/// `syscall; ret`, as in getpid(2).
const CALL: &[u8] = &[0x0f, 0x05, 0xc3];
/// The code that a C library gives the kernel as `sa_restorer`, and Go's counterpart: `mov
/// $SYS_rt_sigreturn, %eax; syscall`, with either of two encodings of the first.
const SIGRETURN: [&[u8]; 2] = [
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
];
const LONGEST: u64 = 9;
/// In glibc both are in the first 400 KiB of its code.
const CHUNK: u64 = 256 << 10;
const MOST: u64 = 8 << 20;

/// The files that have the code in a program that is linked dynamically: glibc, also before 2.34,
/// and musl.
const LIBRARIES: [&[u8]; 4] = [b"libc.so", b"libc-", b"ld-musl-", b"libc.musl-"];

/// Addresses of both.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code {
    pub(super) call: u64,
    pub(super) sigreturn: u64,
}

impl Code {
    /// Looks for both in a mapping. The process could change them, and would harm only itself.
    pub(super) fn find(thread: Pid, mapping: &Range<u64>) -> io::Result<Option<Self>> {
        let end = mapping.end.min(mapping.start.saturating_add(MOST));
        let mut start = mapping.start;
        let (mut call, mut sigreturn) = (None, None);
        while start < end {
            let length = (CHUNK + LONGEST).min(end - start);
            let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            memory::read(thread.as_raw(), start, &mut bytes)?;
            let at = |pattern: &[u8]| Some(start + memmem::find(&bytes, pattern)? as u64);
            call = call.or_else(|| at(CALL));
            sigreturn = sigreturn.or_else(|| SIGRETURN.into_iter().find_map(at));
            if let (Some(call), Some(sigreturn)) = (call, sigreturn) {
                return Ok(Some(Self { call, sigreturn }));
            }
            start += CHUNK;
        }
        Ok(None)
    }
}

/// Returns whether this is the file of a C library. Without one, the first mapped code is searched.
pub(super) fn is_c_library(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    LIBRARIES.iter().any(|library| name.starts_with(library))
}
