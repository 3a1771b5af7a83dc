//! The cgroup of a container: its processes and its freezer, on cgroup v1 and v2.
//!
//! The directories come from the low-level runtime's own record of the container, so that a
//! container whose processes moved into sub-cgroups (an init system, a nested engine) is seen
//! whole.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Freezing waits for every task to leave the kernel; runc, too, gives up in the end.
const SETTLE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(1);

/// The cgroup of one container.
#[derive(Debug, Clone)]
pub struct Cgroup {
    directory: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// `directory` is in the freezer hierarchy.
    V1,
    V2,
}

/// Whether the container's tasks may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezerState {
    /// They run.
    Thawed,
    /// They are held by the freezer (an OCI `pause`).
    Frozen,
}

/// Why the freezer did not do as it was told.
#[derive(Debug, thiserror::Error)]
pub enum FreezerError {
    /// A file of the cgroup could not be read or written.
    #[error("cannot access {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The state did not become the wished one in time.
    #[error("the cgroup {path} was not {wished} within {} s; a cgroup above it may be frozen",
            SETTLE.as_secs())]
    Timeout {
        /// The cgroup.
        path: PathBuf,
        /// "frozen" or "thawed".
        wished: &'static str,
    },
}

impl Cgroup {
    /// A cgroup of the v1 freezer hierarchy.
    #[must_use]
    pub fn v1(freezer_directory: PathBuf) -> Self {
        Self {
            directory: freezer_directory,
            version: Version::V1,
        }
    }

    /// A cgroup of the unified hierarchy.
    #[must_use]
    pub fn v2(directory: PathBuf) -> Self {
        Self {
            directory,
            version: Version::V2,
        }
    }

    /// The cgroup's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The pids of all processes of the cgroup and of the cgroups below it.
    ///
    /// # Errors
    /// What the kernel said, with the path. Sub-cgroups that vanish meanwhile are no error.
    pub fn pids(&self) -> io::Result<BTreeSet<i32>> {
        let mut pids = BTreeSet::new();
        collect_pids(&self.directory, &mut pids)?;
        Ok(pids)
    }

    /// Whether the cgroup itself was frozen; what a cgroup above does is not ours to change.
    ///
    /// # Errors
    /// [`FreezerError::Io`].
    pub fn freezer_state(&self) -> Result<FreezerState, FreezerError> {
        let frozen = match self.version {
            // self_freezing tells our own setting from that of a parent (cgroup-v1/freezer).
            Version::V1 => self.read("freezer.self_freezing")?.trim() == "1",
            Version::V2 => self.read("cgroup.freeze")?.trim() == "1",
        };
        Ok(if frozen {
            FreezerState::Frozen
        } else {
            FreezerState::Thawed
        })
    }

    /// Whether the tasks stand still, or are about to, be it on account of a cgroup above.
    ///
    /// # Errors
    /// [`FreezerError::Io`].
    pub fn is_held(&self) -> Result<bool, FreezerError> {
        Ok(self.settled()? != Some(FreezerState::Thawed))
    }

    /// Lets the tasks run and waits until they do.
    ///
    /// # Errors
    /// [`FreezerError`].
    pub fn thaw(&self) -> Result<(), FreezerError> {
        self.set(FreezerState::Thawed)
    }

    /// Holds the tasks and waits until all of them stand still.
    ///
    /// # Errors
    /// [`FreezerError`].
    pub fn freeze(&self) -> Result<(), FreezerError> {
        self.set(FreezerState::Frozen)
    }

    fn set(&self, wished: FreezerState) -> Result<(), FreezerError> {
        let (file, value, word) = match (self.version, wished) {
            (Version::V1, FreezerState::Frozen) => ("freezer.state", "FROZEN", "frozen"),
            (Version::V1, FreezerState::Thawed) => ("freezer.state", "THAWED", "thawed"),
            (Version::V2, FreezerState::Frozen) => ("cgroup.freeze", "1", "frozen"),
            (Version::V2, FreezerState::Thawed) => ("cgroup.freeze", "0", "thawed"),
        };
        let deadline = Instant::now() + SETTLE;
        loop {
            // Written again each time: a v1 cgroup can stay FREEZING while tasks are being forked
            // into it, and another write makes the kernel look again.
            let path = self.directory.join(file);
            fs::write(&path, value).map_err(|source| FreezerError::Io { path, source })?;
            if self.settled()? == Some(wished) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(FreezerError::Timeout {
                    path: self.directory.clone(),
                    wished: word,
                });
            }
            sleep(POLL);
        }
    }

    /// What the tasks really do; `None` in between (v1 `FREEZING`).
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

fn collect_pids(directory: &Path, pids: &mut BTreeSet<i32>) -> io::Result<()> {
    let procs = directory.join("cgroup.procs");
    let text = fs::read_to_string(&procs)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", procs.display())))?;
    // A pid of 0 is a process outside our pid namespace: not one that we could act on.
    pids.extend(
        text.lines()
            .filter_map(|line| line.parse::<i32>().ok())
            .filter(|pid| *pid > 0),
    );
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            match collect_pids(&entry.path(), pids) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn sub_cgroups_belong_to_the_container() {
        let directory = directory_with(&[
            ("cgroup.procs", "10\n"),
            ("a/cgroup.procs", "11\n12\n"),
            ("a/b/cgroup.procs", "13\n0\n"),
        ]);
        let cgroup = Cgroup::v2(directory.path().into());
        assert_eq!(cgroup.pids().unwrap(), BTreeSet::from([10, 11, 12, 13]));
    }

    #[test]
    fn a_missing_cgroup_is_an_error_with_its_path() {
        let error = Cgroup::v2("/nonexistent/cg".into()).pids().unwrap_err();
        assert!(error.to_string().contains("/nonexistent/cg/cgroup.procs"));
    }

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
}
