//! The copying of GPU contents: by the driver's one thread, or, for the time of its call, by many
//! threads of ours (`stasis-injection`).
//!
//! [`CopyingDriver`] is the driver whose checkpoints put contents into files in memory, and whose
//! restores take them from there. For each program a process of ours ([`process`]) makes the file
//! before anything stands still, writes a record of how to put the program back ([`records`]), and
//! changes the program. A process that was checkpointed so depends on none of ours: the file has no
//! name and lives as long as its mapping, and any driver call takes the contents from there.

mod armed;
mod build;
mod copier;
pub mod detached;
pub mod driver;
pub mod imports;
mod memory_of;
mod new_file;
pub mod process;
mod records;
pub mod self_test;
mod share;
mod steps;
pub mod survey;

pub use build::why_not_passed;
pub use copier::Unanswered;
pub use driver::CopyingDriver;
pub use new_file::NewFiles;

use std::io;
use std::path::Path;
use std::time::Duration;

use stasis_host::deadline::{PROC, within};
use stasis_injection::{Span, contents_of};
use stasis_linux::ProcessRef;

use self::copier::Copier;
use self::detached::Whereabouts;
use self::process::{GpuCopy, VERB};
use self::records::{DIRECTORY, has_records};
use crate::cuda::process_set::initial_state::ProcessId;

/// The most time, also with GPU contents of hundreds of GiB.
const LIMIT: Duration = Duration::from_secs(600);

/// Puts back the processes of an operation whose copying was cut off; `directory` is the
/// operation's.
///
/// # Errors
/// Some are not put back, or it takes too long. Code that stays in a process does not disturb it.
pub fn put_back(directory: &Path) -> io::Result<()> {
    let records = directory.join(DIRECTORY);
    if !has_records(&records) {
        return Ok(());
    }
    let job = GpuCopy::PutBack(records);
    Copier::start(VERB, &job)?.answer(LIMIT)
}

/// Whether a checkpoint has taken GPU contents or shared memory from a process: it may only go on
/// with them. `directory` is the operation's.
#[must_use]
pub fn is_lacking(directory: &Path, process: &ProcessRef) -> bool {
    Whereabouts::of(process, directory) != Whereabouts::InIt
        || imports::is_given_up(directory, process)
}

/// Finds the contents of a process in files of ours. The engine itself must not hang in this.
///
/// # Errors
/// An error of reading `/proc`, also if a file system that the process uses does not answer.
fn contents_in_time(process: &ProcessRef) -> io::Result<Vec<Span>> {
    let looked_at = process.clone();
    within(PROC, move || contents_of(&looked_at))?
}

/// Returns how many bytes of a checkpointed process are in files.
///
/// # Errors
/// An error of reading `/proc`, also if that takes too long.
pub fn bytes_in_file(process: &ProcessRef) -> io::Result<u64> {
    let contents = contents_in_time(process)?;
    Ok(contents.iter().map(|contents| contents.length).sum())
}

/// Turns contents in files into memory of their processes, for which their cgroups are charged.
///
/// # Errors
/// The error of the first process for which that fails. All contents still exist.
pub fn make_private(processes: &[ProcessRef]) -> io::Result<()> {
    let mut in_files = Vec::new();
    for process in processes {
        if bytes_in_file(process)? > 0 {
            in_files.push(ProcessId::of(process));
        }
    }
    if in_files.is_empty() {
        return Ok(());
    }
    let job = GpuCopy::MakePrivate(in_files);
    Copier::start(VERB, &job)?.answer(LIMIT)
}
