//! The processes that an operation has started, and that a rollback or recovery waits for.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_host::file_lock::{Sharing, is_held, lock_soon};
use stasis_host::json_record;
use stasis_linux::ProcessRef;

use crate::operation::undo::Undo;
use crate::operation::{Operation, OperationError};

/// The file that every process which an operation starts holds locked. It names the one that makes
/// a dump.
pub(super) const CHILDREN: &str = "children";
const MAX_BYTES: u64 = 1 << 10;
/// How often it is checked whether they have ended.
const POLL: Duration = Duration::from_millis(20);

impl Operation {
    /// Waits until all processes that a killed operation had started have ended. Has the caller
    /// `look` at them now and then.
    ///
    /// # Errors
    /// [`OperationError::Orphans`] if that takes longer than `wait`; or an I/O error.
    pub(crate) fn wait_for_orphans(
        &self,
        undo: &Undo,
        wait: Duration,
        mut look: impl FnMut(),
    ) -> Result<(), OperationError> {
        let deadline = Instant::now().checked_add(wait);
        while self.has_orphans()? && !undo.is_up() {
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return Err(OperationError::Orphans);
            }
            look();
            sleep(POLL);
        }
        Ok(())
    }

    /// Records the program that makes a dump, so that the keeper ends it if it hangs. If it cannot
    /// be recorded, only this process sees that it does.
    pub(crate) fn has_started(&self, program: &Child) {
        if let Ok(Some(process)) = ProcessRef::of_child(program) {
            let text = serde_json::to_vec(&ProcessId::of(&process));
            let _ = text.map(|text| fs::write(self.directory.join(CHILDREN), text));
        }
    }

    /// Returns the program that makes a dump, if it was recorded and lives.
    pub(crate) fn started(&self) -> Option<ProcessRef> {
        let path = self.directory.join(CHILDREN);
        let process: ProcessId = json_record::read(&path, MAX_BYTES).ok()??;
        process.open().ok()?
    }

    fn has_orphans(&self) -> Result<bool, OperationError> {
        let path = self.directory.join(CHILDREN);
        is_held(&path, Sharing::Exclusive).map_err(OperationError::of_file(&path))
    }

    /// Returns the lock that every started process holds while it works: the low-level runtime and
    /// CRIU inherit it, and processes that inherit nothing receive it.
    pub(crate) fn children_lock(&self) -> Result<OwnedFd, OperationError> {
        let path = self.directory.join(CHILDREN);
        let mut state = self.keeper_state();
        let mut lock = || -> io::Result<OwnedFd> {
            let file = match state.children.take() {
                Some(file) => file,
                None => lock_for_children(&path)?,
            };
            state.children.insert(file).try_clone()
        };
        lock().map_err(OperationError::of_file(&path))
    }
}

/// Not CLOEXEC: children inherit the open file, and with it the lock.
fn lock_for_children(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::RDWR;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR)?;
    lock_soon(&file)?;
    Ok(file)
}
