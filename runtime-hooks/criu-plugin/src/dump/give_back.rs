//! Gives tasks their memory back: all of it that can be given, whatever becomes of the rest.
//!
//! It may be done twice, by CRIU and by the userfaultfd daemon after it: memory that is released is
//! there.

use stasis_memory_store::{CHUNK, Reader};

use crate::dump::source::Source;
use crate::error::Error;
use crate::fault_injection::{self, Point};
use crate::refill::{Target, refill_each};
use crate::tasks::tree::is_alive;
use crate::uffd::Userfaultfd;

/// Fills the targets and releases the sources. `all_given` is called before anything is released,
/// if nothing is missing: from then on there is nothing to give, and tasks may change their memory.
///
/// # Errors
/// The first one. What could not be given stays registered with the userfaultfd of its task, so
/// that the task waits for it and never finds zeros; everything else is back.
pub(crate) fn give_back(
    sources: &[Source],
    memory: &[Userfaultfd],
    targets: &[Target<'_>],
    reader: &Reader,
    threads: usize,
    all_given: impl FnOnce(),
) -> Result<(), Error> {
    let mut failed = refill_each(targets, reader, threads);
    failed.retain(|(target, _)| is_alive(target.pid));
    if failed.is_empty() {
        all_given();
    }
    let mut first = None;
    for (source, memory) in sources.iter().zip(memory) {
        let missing: Vec<_> = failed
            .iter()
            .filter(|(target, _)| target.pid == source.task.pid)
            .map(|(target, _)| (target.start(), target.start() + CHUNK as u64))
            .collect();
        let released = release(source, memory, &missing);
        first = first.or(released.err());
    }
    match failed.into_iter().next().map(|(_, error)| error).or(first) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Releases the memory of a task, without what is still missing.
pub(crate) fn release(
    source: &Source,
    memory: &Userfaultfd,
    missing: &[(u64, u64)],
) -> Result<(), Error> {
    let mut result = Ok(());
    for (start, end) in source
        .ranges()
        .into_iter()
        .flat_map(|range| without(range, missing))
    {
        fault_injection::point(Point::Release)?;
        match memory.release(start, end) {
            Err(error) if is_alive(source.task.pid) => {
                let pid = source.task.pid;
                result = result.and(Err(Error::task("release the memory of", pid)(error)));
            }
            _ => {}
        }
    }
    result
}

/// The parts of a range beside those that are missing, which are in the order of their addresses.
fn without((start, end): (u64, u64), missing: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = start;
    for &(from, to) in missing
        .iter()
        .filter(|(from, to)| *from < end && start < *to)
    {
        parts.push((at, from));
        at = to;
    }
    parts.push((at, end));
    parts.retain(|(start, end)| start < end);
    parts
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use stasis_memory_store::{
        After, Buffer, Checksum, Chunk, CudaPids, DumpRequest, ImageId, StoredPages, Take, Tier,
        Writer,
    };

    use super::*;
    use crate::dump::select::SelectedArea;
    use crate::tasks::tree::Task;
    use stasis_linux::pagemap::Pagemap;

    pub(in crate::dump) fn request() -> DumpRequest {
        DumpRequest {
            image_id: ImageId::new(1),
            tier: Tier::Portable,
            directory: None,
            earlier: None,
            threads: 1,
            compression: None,
            after: After::GoOn,
            take: Take::Heaps,
            minimum_mib: 1,
            cuda: CudaPids::default(),
            progress: None,
            report: None,
        }
    }

    /// Stores chunks full of these bytes.
    fn store(writer: &Writer, bytes: &[u8]) -> Vec<Chunk> {
        let mut stream = writer.stream().unwrap();
        let mut buffer = Buffer::new();
        let chunk = |(number, byte): (u32, &u8)| {
            buffer.as_mut_slice().fill(*byte);
            let pages = StoredPages::of(buffer.as_slice()).unwrap();
            let (checksum, place) = stream.put(&buffer, &pages).unwrap();
            Chunk {
                number,
                pages,
                checksum,
                place,
            }
        };
        (0..).zip(bytes).map(chunk).collect()
    }

    #[test]
    fn a_bad_chunk_keeps_nothing_else_back() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let image = tempfile::tempdir().unwrap();
        let writer = Writer::create(image.path(), &request()).unwrap();
        let chunks = store(&writer, &[1, 2, 3]);
        let mut memory = vec![9_u8; 4 * CHUNK];
        let offset = memory.as_ptr().align_offset(CHUNK);
        let memory = &mut memory[offset..][..3 * CHUNK];
        let start = memory.as_ptr().expose_provenance() as u64;
        let task = Task {
            pid,
            pid_inside: pid,
        };
        let sources = [Source {
            task: task.clone(),
            areas: vec![SelectedArea {
                start,
                end: start + memory.len() as u64,
                left: Vec::new(),
                is_locked: false,
                bytes: 0,
            }],
            pagemap: Pagemap::open(pid).unwrap(),
        }];
        let uffd = [Userfaultfd::own()];
        uffd[0].empty(memory);
        let give = |chunks: &[Chunk]| {
            let target = |chunk| Target {
                pid,
                pid_inside: pid,
                area: start,
                chunk,
                memory: Some(&uffd[0]),
            };
            let targets: Vec<_> = chunks.iter().map(target).collect();
            let all = Cell::new(false);
            let reader = writer.reader();
            let given = give_back(&sources, &uffd, &targets, &reader, 2, || all.set(true));
            assert_eq!(given.is_ok(), all.get());
            given
        };
        let is_missing = |number: u64| {
            let address = start + number * CHUNK as u64;
            let mappings = task.mappings().unwrap();
            let mut at = mappings
                .iter()
                .filter(|one| (one.start..one.end).contains(&address));
            at.next().unwrap().has(*b"um")
        };
        let mut bad = chunks.clone();
        bad[1].checksum = Checksum::of(b"other contents");
        assert!(give(&bad).is_err());
        assert_eq!([0, 1, 2].map(is_missing), [false, true, false]);
        // Its task may have changed by now what is back.
        memory[0] = 8;
        give(&chunks).unwrap();
        assert_eq!([0, 1, 2].map(is_missing), [false; 3]);
        assert_eq!(memory[0], 8);
        for (content, byte) in memory.chunks(CHUNK).zip([1, 2, 3]) {
            assert!(content[1..].iter().all(|found| *found == byte), "{byte}");
        }
    }

    #[test]
    fn missing_parts_are_cut_out() {
        assert_eq!(without((4, 16), &[]), [(4, 16)]);
        assert_eq!(without((4, 16), &[(0, 4), (16, 20)]), [(4, 16)]);
        assert_eq!(without((4, 16), &[(4, 8), (12, 16)]), [(8, 12)]);
        assert_eq!(without((4, 16), &[(6, 8), (14, 20)]), [(4, 6), (8, 14)]);
        assert_eq!(without((4, 16), &[(0, 20)]), []);
    }
}
