//! Writing a pack.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pwritev};

use crate::pack::{PackFile, mapping, set_buffered, set_direct};
use crate::{Pack, PacksIn, StoreError};

/// A file on a disk grows by fallocate(2) by as much as it has already, within these bounds. That
/// makes long extents with few calls; the surplus is freed at the end, and the disk may have to
/// discard it.
const PREALLOCATED: std::ops::RangeInclusive<u64> = 16 << 20..=64 << 20;
/// Room is allocated only if the file system has this many times as much free: other streams need
/// room as well.
const PLENTY: u64 = 64;
/// Offset of the first chunk of a pack in memory: whole chunks then fill whole huge pages.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;
/// The most parts of one write: the kernel takes no more at once (`IOV_MAX`).
const MOST_PARTS: usize = 1024;

/// Where a pack is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Medium {
    /// With the other files of its image, through the page cache.
    WithImage,
    /// Past the page cache, and durable when it is closed.
    Disk,
    /// A tmpfs.
    Memory,
}

/// A pack that grows.
#[derive(Debug)]
pub(crate) struct PackWriter {
    medium: Medium,
    pack_file: Arc<PackFile>,
    end: u64,
    /// The end of the blocks allocated for it; `None`: the writer allocates none.
    allocated: Option<u64>,
}

impl PackWriter {
    /// Makes the file, which only its owner may read.
    pub(crate) fn create(
        directory: &Path,
        pack: &Pack,
        packs_in: PacksIn,
    ) -> Result<Self, StoreError> {
        let path = directory.join(pack.file_name());
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(StoreError::writing(&path))?;
        let medium = match packs_in {
            PacksIn::Image => Medium::WithImage,
            PacksIn::Directory if mapping::is_in_memory(&file) => Medium::Memory,
            PacksIn::Directory => Medium::Disk,
        };
        if medium == Medium::Disk {
            set_direct(&file);
        }
        let mut writer = Self {
            medium,
            pack_file: Arc::new(PackFile::new(path, file)),
            end: 0,
            allocated: (medium == Medium::Disk).then_some(0),
        };
        if let Err(error) = writer.append(&[pack.header().as_slice()]) {
            let _ = fs::remove_file(&writer.pack_file.path);
            return Err(error);
        }
        if medium == Medium::Memory {
            writer.end = HUGE_PAGE;
        }
        Ok(writer)
    }

    /// The pack, from which its contents so far can be read.
    pub(crate) fn pack_file(&self) -> &Arc<PackFile> {
        &self.pack_file
    }

    /// Appends whole pages from several places, all or none. Returns the offset of the first.
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<u64, StoreError> {
        let offset = self.end;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let end = offset + bytes as u64;
        self.allocate(end);
        write_at(&self.pack_file.file, parts, offset)
            .map_err(StoreError::writing(&self.pack_file.path))?;
        self.end = end;
        Ok(offset)
    }

    /// Allocates room up to an offset, if there is plenty. An error is ignored: the write reports
    /// it.
    fn allocate(&mut self, end: u64) {
        let Some(allocated) = self.allocated.filter(|allocated| *allocated < end) else {
            return;
        };
        let file = &self.pack_file.file;
        let step = allocated.clamp(*PREALLOCATED.start(), *PREALLOCATED.end());
        let bytes = step.max(end - allocated);
        let free = rustix::fs::fstatvfs(file)
            .map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize));
        let plenty = free / PLENTY >= bytes;
        if plenty && fallocate(file, FallocateFlags::empty(), allocated, bytes).is_ok() {
            self.allocated = Some(allocated + bytes);
        } else {
            // The file may have got a part.
            let _ = file.set_len(self.end);
            self.allocated = None;
        }
    }

    /// Frees the surplus room, and on a disk waits until all is written. Returns the length.
    pub(crate) fn close(self) -> Result<u64, StoreError> {
        self.try_close()
            .map_err(StoreError::writing(&self.pack_file.path))?;
        Ok(self.end)
    }

    fn try_close(&self) -> io::Result<()> {
        let file = &self.pack_file.file;
        file.set_len(self.end)?;
        if self.medium == Medium::Disk {
            return file.sync_all();
        }
        // A network file system may report only now that it is full (close(2)).
        Ok(nix::unistd::close(file.try_clone()?)?)
    }
}

/// Writes all parts, one after the other; through the page cache if the file system refuses
/// O_DIRECT.
fn write_at(file: &File, parts: &[&[u8]], mut offset: u64) -> io::Result<()> {
    let mut parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut parts = parts.as_mut_slice();
    while !parts.is_empty() {
        let some = &parts[..parts.len().min(MOST_PARTS)];
        match pwritev(file, some, offset).map_err(io::Error::from) {
            // Not `WriteZero`, which explains nothing: a file system that takes nothing is full.
            Ok(0) => return Err(Errno::NOSPC.into()),
            Ok(written) => {
                IoSlice::advance_slices(&mut parts, written);
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && set_buffered(file) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::left_out::say_left_out;

    #[test]
    fn what_cannot_be_written_past_the_page_cache_is_written_through_it() {
        let path = env!("CARGO_MANIFEST_DIR");
        let file = tempfile::tempfile_in(path).unwrap();
        if !set_direct(&file) {
            let why = "the file system does it all through the page cache";
            say_left_out("writes past the page cache", why).unwrap();
            return;
        }
        write_at(&file, &[b"too", b" short"], 3).unwrap();
        assert!(!set_buffered(&file), "it is so already");
        let mut read = [0; 9];
        file.read_exact_at(&mut read, 3).unwrap();
        assert_eq!(read, *b"too short");
    }

    #[test]
    fn a_device_that_is_full_is_told() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = write_at(&full, &[b"x"], 0).unwrap_err();
        let error = StoreError::writing(Path::new("/dev/full"))(error);
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
    }
}
