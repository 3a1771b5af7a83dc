//! Stores contents, and reports as the CRIU plugin does.

use std::cell::OnceCell;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use stasis_memory_store::{
    Coming, DumpRequest, FileContents, ProcessMemory, StoreError, StoreStatistics, StreamReport,
    Writer,
};

use super::progress::with_progress;
use crate::gpu_path::process::threads_for;

/// Contents that are stored while more of them come.
pub(super) struct Storing<'s> {
    coming: &'s Coming<'s>,
    /// The number of all threads.
    threads: NonZeroUsize,
    bytes: &'s AtomicU64,
    begun: &'s OnceCell<Instant>,
}

/// The error that has ended storing.
struct Failed(io::Error);

/// Stores contents, and writes the index of their image.
pub(super) fn store(
    writer: Writer,
    contents: &[FileContents<'_>],
    request: &DumpRequest,
) -> io::Result<StoreStatistics> {
    let all = |storing: &Storing<'_>| {
        let mut contents = contents.iter();
        contents.try_for_each(|contents| storing.add(contents, storing.threads))
    };
    store_coming(writer, request, all, |_| true)
}

/// Does the same with contents that `bring` adds while others are stored; keeps the wanted ones, by
/// the pid of their process and their address.
pub(super) fn store_coming(
    mut writer: Writer,
    request: &DumpRequest,
    bring: impl FnOnce(&Storing<'_>) -> io::Result<()>,
    are_wanted: impl Fn((i32, u64)) -> bool,
) -> io::Result<StoreStatistics> {
    let (bytes, begun) = (AtomicU64::new(0), OnceCell::new());
    let threads = threads_for(request.threads);
    let stored = with_progress(request.progress.as_deref(), &bytes, |done| {
        writer.store_coming(threads, done, |coming| {
            let storing = Storing {
                coming,
                threads,
                bytes: &bytes,
                begun: &begun,
            };
            bring(&storing).map_err(Failed)
        })
    });
    let (mut processes, stored) = stored.map_err(|Failed(error)| error)?;
    for process in &mut processes {
        let pid = process.pid;
        process.areas.retain(|area| are_wanted((pid, area.start)));
    }
    processes.retain(|process| !process.areas.is_empty());
    let report = report(&processes, stored, writer.not_reused());
    writer.finish(&processes).map_err(io::Error::other)?;
    let took = begun.get().map(Instant::elapsed).unwrap_or_default();
    Ok(StoreStatistics {
        copy_seconds: took.as_secs_f64(),
        ..report
    })
}

fn report(
    processes: &[ProcessMemory],
    stored: StreamReport,
    not_reused: Option<String>,
) -> StoreStatistics {
    let areas = || processes.iter().flat_map(|process| &process.areas);
    let bytes = areas().map(|area| area.bytes).sum::<u64>();
    let chunks = areas().flat_map(|area| &area.chunks);
    let with_contents: u64 = chunks.map(|chunk| chunk.pages.bytes() as u64).sum();
    StoreStatistics {
        processes: processes.len(),
        areas: areas().count(),
        bytes,
        zero_bytes: bytes.saturating_sub(with_contents),
        reused_bytes: stored.reused_bytes,
        stored_bytes: stored.stored_bytes,
        not_reused,
        ..StoreStatistics::default()
    }
}

impl Storing<'_> {
    /// Adds contents, and sets the number of threads that store from now on.
    pub(super) fn add(&self, contents: &FileContents<'_>, at_work: NonZeroUsize) -> io::Result<()> {
        self.begun.get_or_init(Instant::now);
        self.bytes.fetch_add(contents.bytes, Ordering::Relaxed);
        self.coming.add(contents, at_work).map_err(io::Error::other)
    }

    /// Returns the number of all threads.
    pub(super) fn threads(&self) -> NonZeroUsize {
        self.threads
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self(io::Error::other(error))
    }
}
