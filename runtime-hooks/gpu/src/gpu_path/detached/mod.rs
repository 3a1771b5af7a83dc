//! GPU contents that are detached from their processes while CRIU dumps or restores these.
//!
//! CRIU cannot dump a mapping of a file that has no name, and it copies once more all that it
//! dumps. So contents that the driver has put into a file of ours are stored from there, and the
//! processes have a hole of the same size when CRIU comes ([`Holder`]). If the processes go on, the
//! same file is mapped again. A restore loads new files, and maps them once CRIU has made the
//! processes ([`Loaded`]). Loading from disk takes longer than all else, so CRIU and the driver go
//! on meanwhile, and the injected code waits for the bytes that it is to copy ([`Arriving`]); if a
//! part turns out to be damaged, the container is ended before any process of it is unlocked.
//!
//! On a tmpfs the file is a pack of the store from the beginning ([`super::NewFiles`]), and is
//! mapped again privately, also by all containers that are restored from it: no process can change
//! an image, since containers have the file through a read-only mount, and all have one copy of it.
//!
//! No process of a frozen container can map anything: a container that its caller has paused gets
//! its contents back by [`give_back`], when it is resumed.
//!
//! # If we are killed
//! Programs that the operation has started may go on without it, and end the container with a whole
//! image. So the process that holds the files waits, and gives them back when recovery of the
//! operation wants it, once no process traces or freezes the processes any more. A second process
//! has the same files, and continues where the first was killed ([`stand_by`]): it needs no image,
//! which may be removed. If both were killed, recovery gives the contents back from the store, if
//! it exists: they are detached only once the store has them, and after this is recorded in the
//! operation's directory ([`record`]). Without the store they are lost, with an error.

mod again;
mod dump;
mod from_store;
mod held;
mod hold;
mod in_file;
mod load;
mod loaded;
pub mod process;
mod progress;
mod record;
mod stand_by;
mod store;

pub use dump::{Holder, store_again};
pub(super) use from_store::Whereabouts;
pub use in_file::{InFile, in_files};
pub use load::{Load, Until};
pub use loaded::{Arriving, Loaded};
pub use record::{are_detached, kept_in};
pub use stand_by::StandBy;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use stasis_injection::detach::map;
use stasis_injection::{ContentsFile, Span, contents_of};
use stasis_linux::ProcessRef;

use self::process::{DetachedProcess, VERB};
use super::copier::Copier;

/// CRIU ends with the operation that has started it, and containers are thawed before any contents
/// are brought back.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
/// Slower than any disk that is fit for this, in bytes a second.
const SLOWEST: u64 = 50 << 20;
const LEAST: Duration = Duration::from_secs(120);

/// Gives back all contents that are still detached from processes of an operation that was cut off;
/// `directory` is the operation's.
///
/// # Errors
/// Some are still detached: the driver must not be asked to restore those processes.
pub fn give_back(directory: &Path) -> io::Result<()> {
    let Some(detached) = record::read(directory)? else {
        return Ok(());
    };
    let limit = PATIENCE + limit_for(detached.bytes());
    let job = DetachedProcess::GiveBack(directory.to_owned());
    Copier::start(VERB, &job)?.answer(limit)
}

/// Returns the most time for moving this many bytes.
fn limit_for(bytes: u64) -> Duration {
    LEAST + Duration::from_secs(bytes / SLOWEST)
}

/// Maps contents at their addresses; a process that has ended needs none. Another process may still
/// trace the process, or have frozen it.
fn map_again(process: &ProcessRef, contents: Span, from: &ContentsFile) -> io::Result<()> {
    if contents_of(process)?.contains(&contents) {
        // They were not detached.
        return Ok(());
    }
    let begun = Instant::now();
    loop {
        match map(process, contents, &from.file, from.offset, from.sharing) {
            Ok(()) => return Ok(()),
            Err(_) if process.is_gone() => return Ok(()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(io::Error::other(error)),
            Err(_) => sleep(POLL),
        }
    }
}

/// An item that belongs to a process.
trait OfProcess: Sync {
    /// Its pid in the container.
    fn pid(&self) -> i32;
}

/// Calls `each` with all items: processes at the same time, and the items of one process in order,
/// since only one thread at a time can have a process make a call. Returns the first error.
fn in_processes<T: OfProcess>(
    all: &[T],
    each: impl Fn(&T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let mut processes: BTreeMap<i32, Vec<&T>> = BTreeMap::new();
    for one in all {
        processes.entry(one.pid()).or_default().push(one);
    }
    let of_one = |own: Vec<&T>| own.into_iter().map(&each).fold(Ok(()), io::Result::and);
    thread::scope(|scope| {
        let of_one = &of_one;
        let threads: Vec<_> = processes
            .into_values()
            .map(|own| scope.spawn(move || of_one(own)))
            .collect();
        let ended = threads.into_iter().map(|thread| {
            let panicked = |_| Err(io::Error::other("a thread has panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        // All threads are joined.
        ended.fold(Ok(()), io::Result::and)
    })
}
