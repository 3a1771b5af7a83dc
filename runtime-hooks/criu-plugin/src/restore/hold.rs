//! Holds the tasks of a restore for the engine: freezes their cgroup while CRIU still has all of
//! them stopped, so that none has run when CRIU resumes them.
//!
//! runc puts CRIU into the container's cgroup as well (libcontainer/criu_linux.go,
//! `criuApplyCgroups`), so CRIU leaves it first: it would freeze itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use stasis_linux::cgroup::{Cgroup, FreezerState};

use crate::error::Error;
use crate::tasks::{Task, traced};

/// The cgroup at the root of the hierarchies that the engine's keepers are in, too.
const APART: &str = "stasis";

/// CRIU calls from one thread, one call after the other.
static CGROUP: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Remembers the cgroup of a request.
pub(super) fn prepare(cgroup: Option<PathBuf>) {
    *CGROUP.lock().unwrap_or_else(PoisonError::into_inner) = cgroup;
}

/// Freezes the cgroup, if the engine has asked for it. Once is enough for all tasks.
pub(super) fn tasks() -> Result<(), Error> {
    let wanted = CGROUP.lock().unwrap_or_else(PoisonError::into_inner).take();
    match wanted {
        Some(cgroup) => freeze(&cgroup),
        None => Ok(()),
    }
}

fn freeze(directory: &Path) -> Result<(), Error> {
    let held = |source| Error::NotHeld {
        cgroup: directory.to_owned(),
        source,
    };
    let cgroup = Cgroup::with_freezer(directory.to_owned());
    check_tasks(&cgroup).map_err(held)?;
    cgroup.move_out(std::process::id(), APART).map_err(held)?;
    cgroup.freeze().map_err(|error| {
        // SIGKILL does not end tasks that a freezer of version 1 holds.
        let _ = cgroup.request(FreezerState::Thawed);
        held(io::Error::other(error))
    })
}

/// Every task has to be in the cgroup, or below it: another would run on.
fn check_tasks(cgroup: &Cgroup) -> io::Result<()> {
    let there = cgroup.pids()?;
    let tasks = traced()?;
    match tasks.iter().find(|task| !there.contains(&task.pid)) {
        Some(Task { pid_inside, .. }) => {
            let outside = format!("process {pid_inside} of the container is not in it");
            Err(io::Error::other(outside))
        }
        None => Ok(()),
    }
}
