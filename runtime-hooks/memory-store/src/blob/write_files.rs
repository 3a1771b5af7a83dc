//! Large files of CRIU, made again from the blobs that have their pieces.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::files::LargeFile;
use crate::file_contents::queue::for_each;
use crate::{CHUNK, Index, Reader, StoreError, StoredPages};

/// The mode of CRIU's files that come whole.
const MODE: u32 = 0o600;

/// Refuses an index that is not of these files, one for one: each piece follows the one before, and
/// the last one ends where the file does.
pub fn refuse_other_files(index: &Index, files: &[LargeFile<'_>]) -> Result<(), String> {
    let numbers = index.processes.iter().map(|process| process.pid);
    if !numbers.eq(files.iter().map(|large| large.number)) {
        return Err("its index of files is that of other ones".to_owned());
    }
    for (process, large) in index.processes.iter().zip(files) {
        let mut end = 0;
        for area in &process.areas {
            if area.start != end || area.bytes > CHUNK as u64 {
                return Err(format!("a piece of {} is not where it can be", large.name));
            }
            end += area.bytes;
        }
        if end != large.bytes {
            let (name, bytes) = (large.name, large.bytes);
            return Err(format!("its pieces of {name} have {end} bytes of {bytes}"));
        }
    }
    Ok(())
}

/// Writes the files of an index that [`refuse_other_files`] accepts, from its packs in the same
/// directory. The files are not durable yet.
pub fn write_files(
    directory: &Path,
    index: &Index,
    files: &[LargeFile<'_>],
    threads: usize,
) -> Result<(), StoreError> {
    let reader = Reader::open(directory, index, None)?;
    for (process, large) in index.processes.iter().zip(files) {
        let path = directory.join(large.name);
        let file = create(&path, large.bytes).map_err(StoreError::writing(&path))?;
        for_each(&process.areas, threads, |area, buffer| {
            for chunk in &area.chunks {
                let loaded = reader.load(process.pid, area.start, chunk, buffer)?;
                let written = write(&file, area.start, &chunk.pages, loaded.verified()?);
                written.map_err(StoreError::writing(&path))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn create(path: &Path, bytes: u64) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(MODE).open(path)?;
    file.set_len(bytes)?;
    Ok(file)
}

fn write(file: &File, at: u64, pages: &StoredPages, mut stored: &[u8]) -> io::Result<()> {
    for run in pages.runs() {
        let (part, rest) = stored.split_at_checked(run.bytes).unwrap_or((stored, &[]));
        file.write_all_at(part, at + run.offset as u64)?;
        stored = rest;
    }
    Ok(())
}
