//! The low-level runtime's part of a checkpoint.

use std::ffi::OsString;
use std::path::Path;
use std::process::Output;

use rustix::fs::statvfs;

use crate::criu_log::{self, KeptLog, KeptName};
use crate::engine::Engine;
use crate::error::{Failure, LowLevelFailure};
use crate::invocation::CheckpointOptions;
use crate::low_level;
use crate::memory_dump::{MemoryDump, MemoryFailure};
use crate::preflight::Plan;

/// Bytes; less than CRIU's files of any container.
const NEXT_TO_NOTHING: u64 = 64 << 10;

/// Lets the low-level runtime and CRIU dump the container. Gives what [`MemoryDump::not_returned`] does.
///
/// # Errors
/// [`Failure::Start`] or [`Failure::LowLevel`], with CRIU's log kept.
pub(crate) fn dump(
    plan: &Plan<'_>,
    memory: &MemoryDump<'_>,
    args: &[OsString],
) -> Result<Option<String>, Failure> {
    let low_level = &plan.engine.low_level;
    let _huge_pages = memory.huge_pages();
    let output =
        low_level::run(low_level, args, memory.environment()).map_err(|source| Failure::Start {
            path: low_level.path.clone(),
            source,
        })?;
    if output.status.success() {
        return Ok(memory.not_returned());
    }
    Err(Failure::LowLevel(failure_of(
        plan.engine,
        plan.options,
        &output,
        memory.failed(),
    )))
}

/// What a dump that failed came to, with CRIU's log kept; `memory` is our plugin's word.
pub(crate) fn failure_of(
    engine: &Engine,
    options: &CheckpointOptions,
    output: &Output,
    memory: MemoryFailure,
) -> Box<LowLevelFailure> {
    // runc and crun have CRIU log to the image directory when no work directory is given.
    let work = options.work_path.as_deref().unwrap_or(&options.image_path);
    Box::new(LowLevelFailure {
        program: format!("{} checkpoint", low_level::name(&engine.low_level)),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        memory,
        log: keep_log(engine, work, "dump.log", &options.id),
        full: is_full(&options.image_path).then(|| options.image_path.clone()),
    })
}

/// CRIU cannot log why it failed where there is no room for its log either.
fn is_full(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|now| now.f_bavail.saturating_mul(now.f_frsize) < NEXT_TO_NOTHING)
}

/// Keeps CRIU's log of a failed operation; that it cannot be kept must not hide the failure.
pub(crate) fn keep_log(
    engine: &Engine,
    work: &Path,
    file_name: &str,
    container: &str,
) -> Option<KeptLog> {
    let time = engine.began_text().replace(':', "");
    let name = KeptName {
        container,
        time: &time,
        began: engine.began,
    };
    criu_log::keep(work, file_name, &engine.settings.paths.log_dir, &name)
        .ok()
        .flatten()
}
