//! The freezer of a cgroup, on versions 1 and 2.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::processes::is_removed;
use super::{Cgroup, Version};

/// Freezing waits for every task to leave the kernel; runc, too, gives up in the end.
const SETTLE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// Whether the container's tasks may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezerState {
    /// The tasks run.
    Thawed,
    /// The freezer holds the tasks (an OCI `pause`).
    Frozen,
}

/// Why a cgroup could not be frozen or thawed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FreezerError {
    #[error("cannot access {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the cgroup {path} was not {requested} within {} s; a cgroup above it may be frozen",
            SETTLE.as_secs())]
    Timeout {
        path: PathBuf,
        requested: &'static str,
    },
}

impl Cgroup {
    /// Returns the state requested of this cgroup itself. Ignores requests to cgroups above it,
    /// since stasis changes only the container's own.
    pub fn freezer_state(&self) -> Result<FreezerState, FreezerError> {
        let frozen = match self.version {
            // Unlike freezer.state, freezer.self_freezing is about the cgroup alone
            // (Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst).
            Version::V1 => self.read("freezer.self_freezing")?.trim() == "1",
            Version::V2 => self.read("cgroup.freeze")?.trim() == "1",
        };
        Ok(if frozen {
            FreezerState::Frozen
        } else {
            FreezerState::Thawed
        })
    }

    /// Whether its tasks are frozen, or are being frozen, through this cgroup or one above it.
    pub fn is_frozen_or_freezing(&self) -> Result<bool, FreezerError> {
        if self.settled()? != Some(FreezerState::Thawed) {
            return Ok(true);
        }
        // Version 2 reports tasks that are being frozen as thawed: requests alone show them.
        Ok(self.version == Version::V2
            && (self.freezer_state()? == FreezerState::Frozen || self.frozen_ancestor()?.is_some()))
    }

    /// Lets the tasks run and waits until they do.
    pub fn thaw(&self) -> Result<(), FreezerError> {
        self.reach(FreezerState::Thawed)
    }

    /// Holds the tasks and waits until all of them stand still.
    pub fn freeze(&self) -> Result<(), FreezerError> {
        self.reach(FreezerState::Frozen)
    }

    /// Requests a state and does not wait until the cgroup has reached it.
    pub fn request(&self, state: FreezerState) -> Result<(), FreezerError> {
        let (path, value) = self.switch(state);
        fs::write(&path, value).map_err(|source| FreezerError::Io { path, source })
    }

    /// The shell command that thaws it.
    pub fn command_to_thaw(&self) -> String {
        let (path, value) = self.switch(FreezerState::Thawed);
        format!("echo {value} >{}", path.display())
    }

    /// The nearest cgroup above this one that is frozen by itself, and so holds its tasks.
    pub fn frozen_ancestor(&self) -> Result<Option<Self>, FreezerError> {
        for directory in self.with_ancestors().skip(1) {
            let above = Self::with_freezer(directory.to_owned());
            match above.freezer_state() {
                Ok(FreezerState::Frozen) => return Ok(Some(above)),
                Ok(FreezerState::Thawed) => {}
                // The root of a hierarchy has no freezer, and others may be gone.
                Err(FreezerError::Io { source, .. }) if is_removed(&source) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the file that requests a state, and the value to write there.
    fn switch(&self, state: FreezerState) -> (PathBuf, &'static str) {
        let (file, value) = match (self.version, state) {
            (Version::V1, FreezerState::Frozen) => ("freezer.state", "FROZEN"),
            (Version::V1, FreezerState::Thawed) => ("freezer.state", "THAWED"),
            (Version::V2, FreezerState::Frozen) => ("cgroup.freeze", "1"),
            (Version::V2, FreezerState::Thawed) => ("cgroup.freeze", "0"),
        };
        (self.directory.join(file), value)
    }

    /// Freezes or thaws the tasks, and waits until all are in that state.
    pub fn reach(&self, state: FreezerState) -> Result<(), FreezerError> {
        let deadline = Instant::now() + SETTLE;
        loop {
            // Written again each time: a v1 cgroup can stay FREEZING while tasks are being forked
            // into it, and another write makes the kernel check again.
            self.request(state)?;
            if self.settled()? == Some(state) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(FreezerError::Timeout {
                    path: self.directory.clone(),
                    requested: match state {
                        FreezerState::Frozen => "frozen",
                        FreezerState::Thawed => "thawed",
                    },
                });
            }
            sleep(POLL);
        }
    }

    /// Returns the state of the tasks; `None` in between (v1 `FREEZING`).
    fn settled(&self) -> Result<Option<FreezerState>, FreezerError> {
        let frozen = match self.version {
            Version::V1 => match self.read("freezer.state")?.trim() {
                "FROZEN" => true,
                "THAWED" => false,
                _ => return Ok(None),
            },
            Version::V2 => self
                .read("cgroup.events")?
                .lines()
                .any(|line| line == "frozen 1"),
        };
        Ok(Some(if frozen {
            FreezerState::Frozen
        } else {
            FreezerState::Thawed
        }))
    }

    fn read(&self, file: &str) -> Result<String, FreezerError> {
        let path = self.directory.join(file);
        fs::read_to_string(&path).map_err(|source| FreezerError::Io { path, source })
    }
}

/// Whether a process is frozen, or is being frozen, by a cgroup that it is in or one above.
///
/// # Errors
/// An I/O error; a process or cgroup that is gone is no error.
pub fn is_frozen(pid: i32) -> io::Result<bool> {
    for cgroup in Cgroup::freezers_of(pid)? {
        match cgroup.is_frozen_or_freezing() {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            // The root of a hierarchy has no freezer, and a process may leave its cgroup meanwhile.
            Err(FreezerError::Io { source, .. }) if is_removed(&source) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::processes::tests::directory_with;

    #[test]
    fn the_freezer_is_read_and_written_on_both_versions() {
        let v1 = directory_with(&[
            ("freezer.self_freezing", "1\n"),
            ("freezer.state", "FROZEN"),
        ]);
        let cgroup = Cgroup::v1(v1.path().into());
        assert_eq!(cgroup.freezer_state().unwrap(), FreezerState::Frozen);
        cgroup.thaw().unwrap();
        assert_eq!(
            fs::read_to_string(v1.path().join("freezer.state")).unwrap(),
            "THAWED"
        );

        let v2 = directory_with(&[("cgroup.freeze", "0\n"), ("cgroup.events", "frozen 1\n")]);
        let cgroup = Cgroup::v2(v2.path().into());
        assert_eq!(cgroup.freezer_state().unwrap(), FreezerState::Thawed);
        cgroup.freeze().unwrap();
        assert_eq!(
            fs::read_to_string(v2.path().join("cgroup.freeze")).unwrap(),
            "1"
        );
    }

    #[test]
    fn a_request_is_not_waited_for() {
        let v1 = directory_with(&[("freezer.state", "FREEZING\n")]);
        let cgroup = Cgroup::v1(v1.path().into());
        assert!(cgroup.is_frozen_or_freezing().unwrap());
        cgroup.request(FreezerState::Frozen).unwrap();
        let written = fs::read_to_string(v1.path().join("freezer.state"));
        assert_eq!(written.unwrap(), "FROZEN");
        assert!(matches!(
            Cgroup::v2(v1.path().into()).is_frozen_or_freezing(),
            Err(FreezerError::Io { path, .. }) if path.ends_with("cgroup.events")
        ));
        for (requested, is_so) in [("1\n", true), ("0\n", false)] {
            let files = [
                ("cgroup.freeze", requested),
                ("cgroup.events", "frozen 0\n"),
            ];
            let v2 = directory_with(&files);
            let cgroup = Cgroup::v2(v2.path().into());
            assert_eq!(cgroup.is_frozen_or_freezing().unwrap(), is_so);
        }
    }

    #[test]
    fn what_is_frozen_above_is_found_with_the_way_to_thaw_it() {
        let root = directory_with(&[
            ("cgroup.procs", ""),
            ("pods/cgroup.procs", ""),
            ("pods/cgroup.freeze", "0\n"),
            ("pods/pod/cgroup.procs", ""),
            ("pods/pod/cgroup.freeze", "1\n"),
            ("pods/pod/gap/cgroup.procs", ""),
            ("pods/pod/gap/cgroup.freeze", "0\n"),
            ("pods/pod/gap/job/cgroup.procs", ""),
            ("pods/pod/gap/job/cgroup.freeze", "0\n"),
        ]);
        let at = |path: &str| Cgroup::v2(root.path().join(path));
        let above = at("pods/pod/gap/job").frozen_ancestor().unwrap().unwrap();
        assert_eq!(above, at("pods/pod"));
        let command = format!("echo 0 >{}/pods/pod/cgroup.freeze", root.path().display());
        assert_eq!(above.command_to_thaw(), command);
        assert_eq!(at("pods/pod").frozen_ancestor().unwrap(), None);
    }

    #[test]
    fn who_runs_and_who_has_ended_is_not_frozen() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_frozen(own).unwrap());
        assert!(!is_frozen(i32::MAX).unwrap());
    }
}
