//! An operation and its keeper: the record to be undone, and how the operation ends.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};
use std::thread::panicking;

use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_host::file_lock::unlock;

use crate::operation::awaited_start;
use crate::operation::children::CHILDREN;
use crate::operation::intent::{self, Intent};
use crate::operation::keeper::{Keeper, is_trying};
use crate::operation::undo::{self, Begun, Undo};
use crate::operation::{Operation, OperationError};

/// The record of an operation, and its keeper.
#[derive(Debug, Default)]
pub(super) struct KeeperState {
    /// The record as written in the directory.
    undo: Option<Box<Undo>>,
    /// An earlier undo record, owned by another keeper.
    former: Option<Box<Undo>>,
    keeper: Option<Keeper>,
    /// The locked file, which children inherit.
    pub(super) children: Option<OwnedFd>,
    pub(super) end: End,
}

/// How the end of an operation treats the records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing has to be undone. The intent stays, if there is one: it is pending on another party.
    #[default]
    Settled,
    /// The records are removed.
    Cleared,
    /// The records and the lock belong to the keeper.
    HandedOver,
    /// The records stay as they are, without the lock.
    LetGo,
}

/// The work that a failed operation leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// None: all is as it was found, or has ended.
    Nothing,
    /// To undo the record: the operation's keeper tries until it is done.
    ToUndo,
    /// None that could help: a further try would not bring the processes back.
    Lost,
}

impl Left {
    /// The work that is left with processes that could not be brought back.
    pub(crate) fn of(lost: &[ProcessFailure]) -> Self {
        match lost {
            [] => Self::Nothing,
            lost if lost.iter().any(ProcessFailure::may_pass) => Self::ToUndo,
            _ => Self::Lost,
        }
    }
}

impl Operation {
    /// Starts the keeper, and records the changes that it undoes if this process is killed. Must be
    /// called before any change.
    pub(crate) fn keep(&self, undo: Undo) -> Result<(), OperationError> {
        let former = self.left_behind()?;
        // The keeper first: a record without one would wait for the next operation.
        self.stay_kept()?;
        undo.write(&self.directory)?;
        let mut state = self.keeper_state();
        let former = former.filter(|former| former.begun == Begun::Waiting);
        state.former = former.map(Box::new);
        state.undo = Some(Box::new(undo));
        drop(state);
        self.children_lock().map(drop)
    }

    /// Starts another keeper if the first has ended. Must be called before each changing step.
    pub(crate) fn stay_kept(&self) -> Result<(), OperationError> {
        let mut state = self.keeper_state();
        if !state.keeper.as_ref().is_some_and(Keeper::is_alive) {
            let started = Keeper::start(&self.directory, &self.lock);
            state.keeper = Some(started.map_err(OperationError::Keeper)?);
        }
        Ok(())
    }

    /// Replaces the record of the changes that have begun.
    pub(crate) fn has_begun(&self, begun: Begun) -> Result<(), OperationError> {
        let mut state = self.keeper_state();
        if let Some(undo) = &mut state.undo {
            let mut now = undo.clone();
            now.begun = begun;
            now.write(&self.directory)?;
            *undo = now;
        }
        Ok(())
    }

    /// Leaves processes that do not answer the driver, or lack room, and the lock, to the keeper,
    /// which brings them back to the intent's state. Returns the keeper's pid.
    pub(crate) fn hand_over(&self, intent: &Intent) -> Result<u32, OperationError> {
        // If this cannot be written, the earlier record makes the keeper bring them back as well:
        // it gives up an incomplete image, as the caller does, and tries again.
        let recorded = self.record(intent);
        let _ = recorded.and_then(|()| self.has_begun(Begun::Waiting));
        self.leave_to_keeper()
    }

    /// Leaves the record of what has begun, and the lock, to the keeper. Returns its pid.
    pub(crate) fn leave_to_keeper(&self) -> Result<u32, OperationError> {
        if self.keeper_state().end == End::LetGo {
            // This process is the keeper.
            return Ok(std::process::id());
        }
        let has_keeper = self.stay_kept();
        let mut state = self.keeper_state();
        // Without a keeper, `stasis recover` or the next operation finds the records.
        state.end = has_keeper.as_ref().map_or(End::LetGo, |()| End::HandedOver);
        has_keeper?;
        Ok(state.keeper.as_ref().map_or(0, Keeper::pid))
    }

    /// Ends an operation that leaves this work: the keeper undoes the rest, with the lock.
    pub(crate) fn leave(&self, left: Left) {
        match left {
            // The records were settled when all was seen to be as it was found.
            Left::Nothing => {}
            Left::ToUndo => {
                let mut state = self.keeper_state();
                if state.end == End::Settled {
                    state.end = End::HandedOver;
                }
            }
            Left::Lost => self.nothing_to_undo(),
        }
    }

    /// Leaves an earlier operation's record to the keeper that waits for it, or to a new keeper.
    pub fn leave_as_it_is(&self) -> Result<(), OperationError> {
        let end = if is_trying(&self.directory).map_err(OperationError::Keeper)? {
            End::LetGo
        } else {
            self.stay_kept()?;
            End::HandedOver
        };
        self.keeper_state().end = end;
        Ok(())
    }

    /// Removes the record of changes to undo, but keeps the intent.
    pub(super) fn nothing_to_undo(&self) {
        self.keeper_state().former = None;
        for file in [undo::FILE_NAME, CHILDREN] {
            let _ = fs::remove_file(self.directory.join(file));
        }
    }

    /// Returns the record of an operation that was killed together with its keeper.
    pub fn left_behind(&self) -> Result<Option<Undo>, OperationError> {
        Undo::read(&self.directory)
    }

    /// Makes this process act as the one that began `undo`; records stay unless they are cleared.
    #[must_use]
    pub(crate) fn in_place_of(self, undo: Undo) -> Self {
        let mut state = self.keeper_state();
        state.undo = Some(Box::new(undo));
        state.end = End::LetGo;
        drop(state);
        self
    }

    /// Returns the operation of this keeper process, by the directory and the lock.
    #[must_use]
    pub(crate) fn inherited(directory: PathBuf, lock: File) -> Self {
        let operation = Self::new(directory, lock);
        operation.keeper_state().end = End::LetGo;
        operation
    }

    pub(super) fn keeper_state(&self) -> MutexGuard<'_, KeeperState> {
        self.keeper_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes remaining records of an operation that was killed while it removed them.
    pub fn clear_unless_pending(&self) {
        if !self.is_pending() && !self.has(undo::FILE_NAME) {
            self.clear();
        }
    }

    /// Returns whether processes are left to a resume, a start or the operator, or are lost.
    fn is_pending(&self) -> bool {
        self.has(intent::FILE_NAME) || self.has(awaited_start::FILE_NAME)
    }

    fn has(&self, file: &str) -> bool {
        self.directory.join(file).exists()
    }

    /// Removes the record of changes to undo, or everything if nothing is pending.
    fn remove_ours(&self) {
        let (is_ours, former) = {
            let mut state = self.keeper_state();
            (state.undo.is_some(), state.former.take())
        };
        let is_anothers = !is_ours && self.has(undo::FILE_NAME);
        match former {
            Some(former) => {
                let _ = former.write(&self.directory);
            }
            None if !self.is_pending() && !is_anothers => self.clear(),
            None if is_ours => self.nothing_to_undo(),
            None => {}
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let is_settled = self.keeper_state().end == End::Settled;
        // After a panic the changes are not known: the keeper finds out.
        if is_settled && panicking() || self.keeper_state().end == End::HandedOver {
            return;
        }
        if is_settled {
            self.remove_ours();
        }
        if let Some(keeper) = self.keeper_state().keeper.take() {
            keeper.done();
        }
        // The keeper may not have closed it yet.
        let _ = unlock(&self.lock);
    }
}
