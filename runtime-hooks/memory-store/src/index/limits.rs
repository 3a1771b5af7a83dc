//! Limits of an index.

use std::collections::HashSet;

use crate::{Area, CHUNK, Chunk, Encoding, Index, PAGE, Pack, ProcessMemory, StoredPages};

/// Enough for six TiB, if every chunk lacks pages. Decoded it takes less than five times as much
/// memory, also from an untrusted source.
pub(crate) const INDEX_BYTES: u64 = 256 << 20;
/// More packs than a checkpoint refers to; each is an open file.
const PACKS: usize = 1 << 14;
/// The kernel's own limit for pids.
const PROCESSES: usize = 1 << 22;
/// The end of a process's addresses (five levels of page tables).
const ADDRESSES: u64 = 1 << 57;
/// Offsets are signed for the kernel.
const PACK_BYTES: u64 = u64::MAX / 2;

pub(crate) fn check(index: &Index) -> Result<(), String> {
    if index.packs.len() > PACKS || index.processes.len() > PROCESSES {
        return Err("it lists more packs or processes than there can be".to_owned());
    }
    let mut packs = HashSet::new();
    for pack in &index.packs {
        if !packs.insert((pack.creator, pack.stream)) {
            return Err(format!("{} is listed twice", pack.file_name()));
        }
        let bytes = pack.bytes;
        if !bytes.is_multiple_of(PAGE as u64) || bytes < PAGE as u64 || bytes > PACK_BYTES {
            let name = pack.file_name();
            return Err(format!("{name} cannot have {bytes} bytes"));
        }
    }
    let mut pids = HashSet::new();
    for process in &index.processes {
        let pid = process.pid;
        if pid < 1 || !pids.insert(pid) {
            return Err(format!("process {pid} is impossible or listed twice"));
        }
        check_areas(process, &index.packs).map_err(|what| format!("process {pid}: {what}"))?;
    }
    Ok(())
}

fn check_areas(process: &ProcessMemory, packs: &[Pack]) -> Result<(), String> {
    let mut free_from = 0;
    for area in &process.areas {
        let Area { start, bytes, .. } = *area;
        let end = start.checked_add(bytes).filter(|end| *end <= ADDRESSES);
        let whole = [start, bytes].map(|each| each.is_multiple_of(PAGE as u64)) == [true; 2];
        let Some(end) = end.filter(|_| whole && bytes > 0) else {
            return Err(format!("an area of {bytes} bytes at {start:#x} cannot be"));
        };
        if start < free_from {
            let what = "overlaps the one before or is listed out of order";
            return Err(format!("the area at {start:#x} {what}"));
        }
        free_from = end;
        check_chunks(area, packs).map_err(|what| format!("area at {start:#x}: {what}"))?;
    }
    Ok(())
}

fn check_chunks(area: &Area, packs: &[Pack]) -> Result<(), String> {
    let mut next = 0;
    for chunk in &area.chunks {
        let number = chunk.number;
        if u64::from(number) < next {
            return Err(format!("chunk {number} is listed twice or out of order"));
        }
        next = u64::from(number) + 1;
        let bytes = area.chunk_bytes(number);
        check_pages(&chunk.pages, bytes / PAGE)
            .and_then(|()| check_place(chunk, packs))
            .map_err(|what| format!("chunk {number}: {what}"))?;
    }
    Ok(())
}

fn check_pages(stored: &StoredPages, pages: usize) -> Result<(), String> {
    let fits = match stored {
        StoredPages::All(_) => stored.count() == pages && pages > 0,
        StoredPages::Some(_) => {
            stored.end() <= pages && stored.count() > 0 && stored.count() < pages
        }
    };
    if fits {
        return Ok(());
    }
    let (count, end) = (stored.count(), stored.end());
    Err(format!(
        "{count} stored pages up to number {end} do not fit a chunk of {pages}"
    ))
}

fn check_place(chunk: &Chunk, packs: &[Pack]) -> Result<(), String> {
    let place = &chunk.place;
    let pack = usize::try_from(place.pack).map_or(None, |number| packs.get(number));
    let Some(pack) = pack else {
        return Err(format!("pack {} is not listed", place.pack));
    };
    let bytes = u64::from(place.bytes);
    let padded = bytes.next_multiple_of(PAGE as u64);
    let end = place.offset.checked_add(padded);
    let inside = end.is_some_and(|end| end <= pack.bytes);
    if !inside || place.offset < PAGE as u64 || !place.offset.is_multiple_of(PAGE as u64) {
        let (name, offset) = (pack.file_name(), place.offset);
        return Err(format!("{bytes} bytes at {offset} are not in {name}"));
    }
    let content = chunk.pages.bytes() as u64;
    let fits = match place.encoding {
        Encoding::Raw => bytes == content,
        Encoding::Zstd => bytes > 0 && bytes < content,
    };
    if !fits || content > CHUNK as u64 {
        return Err(format!("{bytes} bytes cannot hold {content}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
