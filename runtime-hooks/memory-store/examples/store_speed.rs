//! Measures how fast contents are checked, stored and read: `cargo run --release --example
//! store_speed -- THREADS MIB PLACE=DIRECTORY...`
//!
//! PLACE is image or apart, or one of these with "+zstd". The contents are random. What is read was
//! just written, so it is in the page cache, unless it went past it. Then contents that
//! lie in a file in memory are stored, and loaded into another one.
#![allow(clippy::unwrap_used)] // it has nobody to tell

use std::fs::File;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use stasis_linux::memory_file::{self, Clearing};
use stasis_memory_store::{
    Area, Buffer, CHUNK, Checksum, Chunk, Compression, DumpRequest, FileContents, ImageId, PAGE,
    ProcessMemory, Reader, StoredPages, Writer, discard,
};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [threads, mib, places @ ..] = &arguments[..] else {
        eprintln!("usage: store_speed THREADS MIB PLACE=DIRECTORY...");
        return;
    };
    let (threads, mib): (usize, usize) = (threads.parse().unwrap(), mib.parse().unwrap());
    in_memory();
    for place in places {
        let (name, directory) = place.split_once('=').unwrap();
        through_store(name, Path::new(directory), threads, mib * (1 << 20) / CHUNK);
        let threads = NonZeroUsize::new(threads).unwrap();
        through_files(name, Path::new(directory), threads, mib * (1 << 20) / CHUNK);
    }
}

/// What is done with every chunk, one thread.
fn in_memory() {
    // Written, or the kernel has one page of zeros for all of it.
    let mut contents = vec![1_u8; 16 * CHUNK];
    black_box(&mut contents).fill(0);
    let mut random = contents.clone();
    fastrand::fill(&mut random);
    report_memory("checksum", &random, |chunk| Checksum::of(chunk).0 != 0);
    let is_stored = |chunk: &[u8]| StoredPages::of(chunk).is_some();
    report_memory("zero pages, all zero", &contents, is_stored);
    report_memory("zero pages, none", &random, is_stored);
}

fn report_memory(what: &str, contents: &[u8], work: impl Fn(&[u8]) -> bool) {
    for (name, span) in [("4 MiB again and again", 1), ("64 MiB", 16)] {
        let round = |_| {
            let start = Instant::now();
            for chunk in contents.chunks(CHUNK).cycle().take(span).cycle().take(64) {
                black_box(work(black_box(chunk)));
            }
            start.elapsed().as_secs_f64()
        };
        let best = (0..7).map(round).fold(f64::MAX, f64::min);
        println!("{what}, {name}: {:.1} GiB/s", 0.25 / best);
    }
}

fn request(place: &str, directory: &Path) -> DumpRequest {
    let (place, compressed) = match place.split_once('+') {
        Some((place, _)) => (place, true),
        None => (place, false),
    };
    DumpRequest {
        image_id: ImageId::new(fastrand::u128(..)),
        directory: (place == "apart").then(|| directory.join("store_speed")),
        threads: 1,
        compression: compressed.then_some(Compression { level: 1 }),
        progress: None,
    }
}

fn through_store(name: &str, directory: &Path, threads: usize, chunks: usize) {
    let request = request(name, directory);
    let mut writer = Writer::create(directory, &request).unwrap();
    let start = Instant::now();
    let processes: Vec<_> = std::thread::scope(|scope| {
        let store = |pid| store(&writer, i32::try_from(pid).unwrap(), chunks / threads);
        let threads: Vec<_> = (1..=threads)
            .map(|pid| scope.spawn(move || store(pid)))
            .collect();
        threads
            .into_iter()
            .map(|each| each.join().unwrap())
            .collect()
    });
    let index = writer.finish(&processes).unwrap();
    report(name, "written", chunks, start);
    drop(writer);
    let start = Instant::now();
    let reader = Reader::open(directory, &index, request.directory.as_deref()).unwrap();
    report(name, "opened", chunks, start);
    std::thread::scope(|scope| {
        for process in &index.processes {
            let reader = &reader;
            scope.spawn(move || read(reader, process));
        }
    });
    report(name, "opened and read", chunks, start);
    discard(directory, request.directory.as_deref()).unwrap();
}

/// From a populated file in memory, and into one.
fn through_files(name: &str, directory: &Path, threads: NonZeroUsize, chunks: usize) {
    let bytes = (chunks * CHUNK) as u64;
    let allocated = || {
        let file = memory_file::create(bytes).unwrap();
        memory_file::allocate(&file, bytes).unwrap();
        file
    };
    let cleared = || {
        let file = allocated();
        let clearing = Clearing::start(&file, bytes, threads).unwrap();
        assert!(clearing.ends_within(Duration::MAX));
        file
    };
    let from = cleared();
    let mut content = vec![0; CHUNK];
    fastrand::fill(&mut content);
    for number in 0..chunks as u64 {
        content[..8].copy_from_slice(&number.to_le_bytes());
        from.write_all_at(&content, number * CHUNK as u64).unwrap();
    }
    let request = request(name, directory);
    let progress = AtomicU64::new(0);
    let start = Instant::now();
    let mut writer = Writer::create(directory, &request).unwrap();
    let stored = writer.store_files(&[whole(&from, bytes)], threads, &progress);
    let index = writer.finish(&stored.unwrap().0).unwrap();
    report(name, "written from a file", chunks, start);
    drop(writer);
    let load = |what: &str, into: &File| {
        let start = Instant::now();
        let reader = Reader::open(directory, &index, request.directory.as_deref()).unwrap();
        let loaded = reader.load_files(&index.processes, &[whole(into, bytes)], threads, &progress);
        loaded.unwrap();
        report(name, what, chunks, start);
    };
    let start = Instant::now();
    let into = cleared();
    report(name, "a file allocated and cleared", chunks, start);
    load("opened and loaded into a file", &into);
    drop(into);
    let into = allocated();
    load("opened and loaded into a file that was not cleared", &into);
    discard(directory, request.directory.as_deref()).unwrap();
}

fn whole(file: &File, bytes: u64) -> FileContents<'_> {
    FileContents {
        pid: 1,
        start: PAGE as u64,
        file,
        offset: 0,
        bytes,
    }
}

fn report(name: &str, what: &str, chunks: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let gib = chunks as f64 / 256.0;
    println!("{name}, {what}: {seconds:.3} s, {:.2} GiB/s", gib / seconds);
}

fn store(writer: &Writer, pid: i32, count: usize) -> ProcessMemory {
    let mut stream = writer.stream().unwrap();
    let mut buffer = Buffer::new();
    fastrand::fill(buffer.as_mut_slice());
    let mut chunks = Vec::new();
    for number in 0..u32::try_from(count).unwrap() {
        // Another content each time, at no cost.
        buffer.as_mut_slice()[..4].copy_from_slice(&number.to_le_bytes());
        buffer.as_mut_slice()[4..8].copy_from_slice(&pid.to_le_bytes());
        let pages = StoredPages::of(buffer.as_slice()).unwrap();
        let (checksum, place) = stream.put(&buffer, &pages).unwrap();
        chunks.push(Chunk {
            number,
            pages,
            checksum,
            place,
        });
    }
    stream.close().unwrap();
    let area = Area {
        start: PAGE as u64,
        bytes: (count * CHUNK) as u64,
        chunks,
    };
    ProcessMemory {
        pid,
        areas: vec![area],
    }
}

fn read(reader: &Reader, process: &ProcessMemory) {
    let mut buffer = Buffer::new();
    for area in &process.areas {
        for chunk in &area.chunks {
            let content = reader.load(process.pid, area.start, chunk, &mut buffer);
            black_box(content.unwrap().verified().unwrap());
        }
    }
}
