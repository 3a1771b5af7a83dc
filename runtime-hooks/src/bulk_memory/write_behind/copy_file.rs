//! Copies one file to disk past the page cache.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl};
use stasis_memory_store::{Buffer, PAGE};

/// Copies a file with direct I/O, where the file system supports it; it is on disk on return.
pub(super) fn copy_file(from: &Path, to: &Path) -> io::Result<u64> {
    let mut source = File::open(from)?;
    let bytes = source.metadata()?.len();
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    if bytes > 0 {
        match fallocate(&target, FallocateFlags::empty(), 0, bytes) {
            Err(error) if error != rustix::io::Errno::OPNOTSUPP => return Err(error.into()),
            _ => {}
        }
    }
    set_direct(&target, Cache::Direct)?;
    let mut buffer = Buffer::new();
    let mut copied = 0;
    loop {
        let read = read_block(&mut source, buffer.as_mut_slice())?;
        if read == 0 {
            break;
        }
        copied += read as u64;
        // Direct I/O writes whole pages; `set_len` below removes the padding.
        let padded = read.next_multiple_of(PAGE);
        buffer.as_mut_slice()[read..padded].fill(0);
        write_block(&mut target, &buffer.as_slice()[..padded])?;
    }
    target.set_len(copied)?;
    target.sync_all()?;
    Ok(copied)
}

fn read_block(source: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match source.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn write_block(target: &mut File, block: &[u8]) -> io::Result<()> {
    match target.write_all(block) {
        // Some file systems refuse direct I/O only at the first write.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            set_direct(target, Cache::Buffered)?;
            target.write_all(block)
        }
        written => written,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    Direct,
    Buffered,
}

/// Switches direct I/O on, if the file system supports it, or off.
fn set_direct(file: &File, cache: Cache) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    match cache {
        Cache::Direct => {
            let _ = fcntl_setfl(file, flags | OFlags::DIRECT);
        }
        Cache::Buffered => fcntl_setfl(file, flags - OFlags::DIRECT)?,
    }
    Ok(())
}
