//! The keeper of an operation, from its start to its end (`recovery/mod.rs` explains its purpose).
//!
//! It reads a pipe that only its operation holds, and opens nothing else until the pipe closes: its
//! cost is one sleeping process.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use stasis_host::cancel::Cancel;
use stasis_host::respawn;

use crate::low_level::watch::{Victims, Watch};
use crate::operation::undo::Undo;
use crate::operation::{DONE, KEEPER, Operation, show_trying};
use crate::recovery::report::{LogWhen, Recovered, recover_and_report};
use crate::recovery::waiting::waits_for;

/// The first and the longest pause between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A keeper: the directory of its operation.
#[derive(Debug)]
pub(crate) struct Keeper {
    directory: PathBuf,
}

/// The result of a try.
enum Tried {
    /// Nothing is left to undo.
    Over,
    NotYet,
}

impl Keeper {
    pub(crate) fn of_this_process() -> Option<Self> {
        let directory = respawn::job_of(KEEPER, c"stasis-keeper")?;
        Some(Self { directory })
    }

    /// Waits for the end of the operation, and undoes its remaining changes.
    ///
    /// # Errors
    /// A signal handler cannot be installed, or the lock was not inherited. The record stays for
    /// the next operation.
    pub(crate) fn run(self) -> io::Result<()> {
        // A caller that signals all processes at once must not end the keeper before its operation.
        let cancel = Cancel::on_signals()?;
        if self.operation_is_done() {
            return Ok(());
        }
        // Only decides whether `stasis recover` starts another keeper.
        let _trying = show_trying(&self.directory);
        let lock = io::stdout().as_fd().try_clone_to_owned()?.into();
        let mut inherited = Some(Operation::inherited(self.directory.clone(), lock));
        let mut pause = FIRST_PAUSE;
        let mut report = LogWhen::Always;
        while let Tried::NotYet = self.attempt(&mut inherited, &mut report) {
            // Between two tries no change is half done.
            if cancel.requested() {
                break;
            }
            sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// Returns whether the operation has sent [`DONE`] before its end.
    fn operation_is_done(&self) -> bool {
        let mut said = Vec::new();
        io::stdin().read_to_end(&mut said).is_ok() && said == DONE
    }

    /// Tries once. Holds the lock no longer than that: others may end processes that cannot be
    /// brought back, and the container itself.
    fn attempt(&self, inherited: &mut Option<Operation>, report: &mut LogWhen) -> Tried {
        let mut operation = inherited.take();
        let undo = match Undo::read(&self.directory) {
            Ok(Some(undo)) => undo,
            Ok(None) => {
                // The operation was killed while it removed its records.
                if let Some(operation) = &operation {
                    operation.clear_unless_pending();
                }
                return Tried::Over;
            }
            Err(_) => return Tried::NotYet,
        };
        let context = undo.context(Cancel::not_needed());
        if waits_for(&context, &undo).is_some() {
            return Tried::NotYet;
        }
        if operation.is_none() {
            operation = Operation::begin_recovery(self.directory.clone()).ok();
        }
        let Some(operation) = operation else {
            return Tried::NotYet;
        };
        // Another operation may have come and gone before the lock was taken.
        match operation.left_behind() {
            Ok(Some(undo)) => undo_left(operation, &undo, report),
            Ok(None) => Tried::Over,
            Err(_) => Tried::NotYet,
        }
    }
}

fn undo_left(operation: Operation, undo: &Undo, report: &mut LogWhen) -> Tried {
    let operation = operation.in_place_of(undo.clone());
    // No limit: CRIU may take long for the dump that the operation has started. One that hangs is
    // ended, as the operation would have done.
    let limit = undo
        .context(Cancel::not_needed())
        .settings
        .deadlines
        .stalled();
    let mut watch = Watch::over(operation.started(), limit, Victims::WithChildren);
    let look = || drop(watch.look());
    if operation
        .wait_for_orphans(undo, Duration::MAX, look)
        .is_err()
    {
        return Tried::NotYet;
    }
    let recovered = recover_and_report(&operation, undo, *report);
    // Failed tries are reported once.
    *report = LogWhen::WhenOver;
    match recovered {
        Recovered::NotYet(_) => Tried::NotYet,
        Recovered::Undone(_) | Recovered::Lost(_) => Tried::Over,
    }
}
