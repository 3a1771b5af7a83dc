//! The memory of another process, as its own protection allows it.

use std::io::{self, IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Fills `bytes` from this address.
///
/// # Errors
/// Errors of process_vm_readv(2); `UnexpectedEof` if only some of it is mapped and readable.
pub fn read(pid: i32, address: u64, bytes: &mut [u8]) -> io::Result<()> {
    let place = place(address, bytes.len())?;
    let wanted = bytes.len();
    let read = process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(bytes)], &[place])?;
    whole(read, wanted)
}

/// Reads the number at an address.
pub fn word(pid: i32, address: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    read(pid, address, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Writes all bytes. Eight that are aligned are written at once: no reader sees some of them alone.
///
/// # Errors
/// Errors of process_vm_writev(2); `UnexpectedEof` if only some of it is mapped and writable.
pub fn write(pid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let place = place(address, bytes.len())?;
    let written = process_vm_writev(Pid::from_raw(pid), &[IoSlice::new(bytes)], &[place])?;
    whole(written, bytes.len())
}

fn place(address: u64, len: usize) -> io::Result<RemoteIoVec> {
    let base = usize::try_from(address).map_err(io::Error::other)?;
    Ok(RemoteIoVec { base, len })
}

fn whole(done: usize, wanted: usize) -> io::Result<()> {
    if done == wanted {
        return Ok(());
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
