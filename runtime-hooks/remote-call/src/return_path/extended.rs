//! The floating-point and vector registers of a thread, as a frame has them.
//!
//! ptrace(2) and frames both have them in the standard format of XSAVE. A frame also has their
//! length, which rt_sigreturn(2) compares with the features that the thread may use
//! (`check_xstate_in_sigframe` in arch/x86/kernel/fpu/signal.c): a thread that has not asked for
//! AMX has less than ptrace(2) gives. So unused features at the end are left out.

use std::arch::x86_64::__cpuid_count;
use std::io;

use nix::unistd::Pid;

use crate::ffi;

/// The legacy region, and the header.
const LEAST: usize = 576;
/// In the legacy region: ptrace(2) fills it with the enabled features, and a frame with a `struct
/// _fpx_sw_bytes` (asm/sigcontext.h).
const SOFTWARE: usize = 464;
/// `XSTATE_BV` in the header: which features are in use.
const IN_USE: usize = 512;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// The leaf of CPUID about XSAVE: the size of each feature, and where it is.
const XSAVE_LEAF: u32 = 0xd;

#[derive(Debug)]
pub(super) struct Extended {
    pub(super) bytes: Vec<u8>,
    /// The number of bytes that the kernel may read.
    pub(super) room: u64,
}

impl Extended {
    /// # Errors
    /// Errors of ptrace(2): a processor without XSAVE (ENODEV).
    pub(super) fn of(thread: Pid) -> io::Result<Self> {
        let mut bytes = ffi::extended_registers(thread)?;
        let room = bytes.len() + size_of_val(&MAGIC2);
        let enabled = word(&bytes, SOFTWARE)?;
        let length = length(word(&bytes, IN_USE)?);
        if length > bytes.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(length);
        let all = (length + size_of_val(&MAGIC2)) as u64;
        let software = [
            u64::from(MAGIC1) | all << 32,
            enabled,
            length as u64,
            0,
            0,
            0,
        ];
        let software = software.map(u64::to_ne_bytes);
        bytes[SOFTWARE..IN_USE].copy_from_slice(software.as_flattened());
        bytes.extend(MAGIC2.to_ne_bytes());
        Ok(Self {
            bytes,
            room: room as u64,
        })
    }
}

/// Returns the length up to the end of the last feature that is in use.
fn length(in_use: u64) -> usize {
    let used = (2..63).filter(|feature| in_use >> feature & 1 != 0);
    let ends = used.map(|feature| {
        let found = __cpuid_count(XSAVE_LEAF, feature);
        (found.eax + found.ebx) as usize
    });
    ends.max().unwrap_or(LEAST).max(LEAST)
}

fn word(bytes: &[u8], offset: usize) -> io::Result<u64> {
    let word = bytes.get(offset..).and_then(<[u8]>::first_chunk);
    let word = word.ok_or(io::ErrorKind::InvalidData)?;
    Ok(u64::from_ne_bytes(*word))
}
