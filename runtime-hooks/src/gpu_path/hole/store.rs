//! Stores contents, and reports on it as the CRIU plugin does.

use std::io;
use std::time::Instant;

use stasis_memory_store::{DumpRequest, FileContents, Report, Writer};

use super::progress::with_progress;
use crate::gpu_path::process::threads_for;

/// Stores contents, and writes the index of their image.
pub(super) fn store(
    mut writer: Writer,
    contents: &[FileContents<'_>],
    request: &DumpRequest,
) -> io::Result<Report> {
    let bytes = contents.iter().map(|contents| contents.bytes).sum();
    let begun = Instant::now();
    let stored = with_progress(request.progress.as_deref(), bytes, |done| {
        writer.store_files(contents, threads_for(request.threads), done)
    });
    let (processes, stored) = stored.map_err(io::Error::other)?;
    let not_reused = writer.not_reused();
    let index = writer.finish(&processes).map_err(io::Error::other)?;
    let chunks = index.areas().flat_map(|area| &area.chunks);
    let with_contents: u64 = chunks.map(|chunk| chunk.pages.bytes() as u64).sum();
    Ok(Report {
        processes: processes.len(),
        areas: contents.len(),
        bytes,
        zero_bytes: bytes.saturating_sub(with_contents),
        reused_bytes: stored.reused_bytes,
        stored_bytes: stored.stored_bytes,
        copy_seconds: begun.elapsed().as_secs_f64(),
        not_reused,
        ..Report::default()
    })
}
