//! The operation's side of its keeper: the process that undoes the operation's changes if the
//! operation is killed (`recovery/keeper.rs` is the keeper's side).
//!
//! The keeper's standard input is a pipe that only the operation holds, so it closes with the
//! operation, whatever kills it. Its standard output is the operation's lock: flock(2) belongs to
//! the open file, which both have, so no other operation gets the lock between the operation's
//! death and the keeper's work.

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stasis_host::file_lock::{MOMENT, Sharing, is_held, lock_within};
use stasis_host::respawn;
use stasis_linux::ProcessRef;

/// The first argument of a keeper; neither runc nor crun has this verb. The second is the
/// operation's directory.
pub(crate) const VERB: &str = "stasis-keeper";
/// The message to the keeper that nothing is left to undo.
pub(crate) const DONE: &[u8] = b"done";
/// How long the keeper may take to end then.
const ENDING: Duration = Duration::from_secs(1);
/// The file on which each trying keeper holds a shared lock.
const TRYING: &str = "trying";

/// Shows others that a keeper tries to undo the record, as long as the file is open.
///
/// # Errors
/// The file cannot be made or locked.
pub(crate) fn show_trying(directory: &Path) -> io::Result<File> {
    let file = File::create(directory.join(TRYING))?;
    lock_within(MOMENT, &file, Sharing::Shared)?;
    Ok(file)
}

/// Returns whether a keeper tries to undo the record.
///
/// # Errors
/// The file cannot be opened or locked.
pub(super) fn is_trying(directory: &Path) -> io::Result<bool> {
    is_held(&directory.join(TRYING), Sharing::Exclusive)
}

/// A keeper.
#[derive(Debug)]
pub(super) struct Keeper {
    pipe: PipeWriter,
    process: Child,
}

impl Keeper {
    pub(super) fn start(directory: &Path, lock: &File) -> io::Result<Self> {
        let (read, pipe) = io::pipe()?;
        let inherited = [Stdio::from(read), Stdio::from(lock.try_clone()?)];
        let process = respawn::start_with(VERB, &directory, inherited)?;
        Ok(Self { pipe, process })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Returns whether the keeper is alive: the pipe's other end is still open.
    pub(super) fn is_alive(&self) -> bool {
        let mut pipe = [PollFd::new(&self.pipe, PollFlags::empty())];
        let polled = poll(&mut pipe, Some(&Timespec::default()));
        polled.is_ok() && !pipe[0].revents().contains(PollFlags::ERR)
    }

    /// Ends the keeper, and waits for it: the parent of an attached container leaves no zombie.
    pub(super) fn done(mut self) {
        // A keeper that has already ended needs no message.
        let _ = self.pipe.write_all(DONE);
        drop(self.pipe);
        if let Ok(Some(process)) = ProcessRef::of_child(&self.process) {
            // Another process may have stopped it.
            let _ = process.outlives(ENDING);
        }
        let _ = self.process.try_wait();
    }
}
