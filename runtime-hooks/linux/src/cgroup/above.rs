//! Frozen cgroups above one. To have that one run alone, all else that they hold is frozen by
//! itself, and then they are thawed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::processes::is_removed;
use super::{Cgroup, FreezerError, FreezerState, children};

/// What is frozen above a cgroup, and what else that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenAbove {
    /// The frozen cgroups, the nearest first.
    frozen: Vec<PathBuf>,
    /// The cgroups beside the way down to the one in question that are not frozen by themselves.
    beside: Vec<PathBuf>,
}

impl Cgroup {
    /// What holds its tasks from above; `None` if nothing does.
    ///
    /// # Errors
    /// [`FreezerError::Io`].
    pub fn frozen_above(&self) -> Result<Option<FrozenAbove>, FreezerError> {
        let mut above = FrozenAbove {
            frozen: Vec::new(),
            beside: Vec::new(),
        };
        let (mut below, mut passed) = (self.directory(), Vec::new());
        for directory in self.with_ancestors().skip(1) {
            passed.extend(not_frozen_beside(below, directory)?);
            if is_frozen_itself(directory)? == Some(true) {
                above.frozen.push(directory.to_owned());
                above.beside.append(&mut passed);
            }
            below = directory;
        }
        Ok((!above.frozen.is_empty()).then_some(above))
    }
}

impl FrozenAbove {
    /// Lets go what is not frozen by itself below, which is the one cgroup alone.
    ///
    /// # Errors
    /// A frozen cgroup holds processes in itself, which would run as well: nothing was changed. Or
    /// an I/O error: [`FrozenAbove::put_back`] is to be called.
    pub fn thaw(&self) -> Result<(), FreezerError> {
        for directory in &self.frozen {
            if has_processes(directory).map_err(|source| of(directory, source))? {
                return Err(FreezerError::Inhabited(directory.clone()));
            }
        }
        for directory in &self.beside {
            unless_removed(at(directory).freeze())?;
        }
        for directory in self.frozen.iter().rev() {
            at(directory).request(FreezerState::Thawed)?;
        }
        Ok(())
    }

    /// Freezes again what was frozen, and only then lets go what is frozen by that. What is gone
    /// meanwhile needs neither.
    ///
    /// # Errors
    /// The first error; all the others were put back.
    pub fn put_back(&self) -> Result<(), FreezerError> {
        let frozen = self.frozen.iter().map(|directory| at(directory).freeze());
        // Held from above: they stay as they are, and nobody waits for them to run.
        let thaw = |directory: &PathBuf| at(directory).request(FreezerState::Thawed);
        let results: Vec<_> = frozen.collect();
        let results = results.into_iter().chain(self.beside.iter().map(thaw));
        results.map(unless_removed).fold(Ok(()), Result::and)
    }
}

fn at(directory: &Path) -> Cgroup {
    Cgroup::with_freezer(directory.to_owned())
}

fn of(directory: &Path, source: io::Error) -> FreezerError {
    FreezerError::Io {
        path: directory.to_owned(),
        source,
    }
}

/// Whether processes are in a cgroup itself, rather than below it.
fn has_processes(directory: &Path) -> io::Result<bool> {
    let mut procs = File::open(directory.join("cgroup.procs"))?;
    Ok(procs.read(&mut [0])? > 0)
}

/// Whether a cgroup is frozen, whatever is above it; `None` if it has no freezer, as the root of a
/// hierarchy, or is gone.
fn is_frozen_itself(directory: &Path) -> Result<Option<bool>, FreezerError> {
    match at(directory).freezer_state() {
        Ok(state) => Ok(Some(state == FreezerState::Frozen)),
        Err(FreezerError::Io { source, .. }) if is_removed(&source) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The children of `directory` but `below` that are not frozen by themselves.
fn not_frozen_beside(below: &Path, directory: &Path) -> Result<Vec<PathBuf>, FreezerError> {
    let mut found = Vec::new();
    for child in children(directory).map_err(|source| of(directory, source))? {
        if child != below && is_frozen_itself(&child)? == Some(false) {
            found.push(child);
        }
    }
    Ok(found)
}

fn unless_removed(result: Result<(), FreezerError>) -> Result<(), FreezerError> {
    match result {
        Err(FreezerError::Io { source, .. }) if is_removed(&source) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tree of cgroups of version 2, each with whether it is frozen by itself.
    fn tree(cgroups: &[(&str, bool)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.procs"), "").unwrap();
        for (path, frozen) in cgroups {
            let directory = root.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cgroup.procs"), "").unwrap();
            let freeze = if *frozen { "1\n" } else { "0\n" };
            fs::write(directory.join("cgroup.freeze"), freeze).unwrap();
            fs::write(directory.join("cgroup.events"), "frozen 1\n").unwrap();
        }
        root
    }

    #[test]
    fn the_others_below_what_is_frozen_are_found() {
        let root = tree(&[
            ("pods", false),
            ("pods/other", false),
            ("pods/pod", true),
            ("pods/pod/a", false),
            ("pods/pod/b", false),
            ("pods/pod/paused", true),
        ]);
        let at = |path: &str| root.path().join(path);
        let above = Cgroup::v2(at("pods/pod/a")).frozen_above().unwrap();
        let above = above.unwrap();
        assert_eq!(above.frozen, [at("pods/pod")]);
        assert_eq!(above.beside, [at("pods/pod/b")]);
        let other = Cgroup::v2(at("pods/other")).frozen_above().unwrap();
        assert_eq!(other, None);

        above.thaw().unwrap();
        let asked = |path: &str| fs::read_to_string(at(path).join("cgroup.freeze")).unwrap();
        assert_eq!((&*asked("pods/pod"), &*asked("pods/pod/b")), ("0", "1"));
        fs::remove_dir_all(at("pods/pod/b")).unwrap();
        above.put_back().unwrap();
        assert_eq!(asked("pods/pod"), "1");
        assert_eq!(asked("pods/pod/paused"), "1\n");
    }

    #[test]
    fn nothing_is_let_go_beside_processes_that_would_run_as_well() {
        let root = tree(&[("pod", true), ("pod/a", false), ("pod/b", false)]);
        let at = |path: &str| root.path().join(path);
        fs::write(at("pod/cgroup.procs"), "4711\n").unwrap();
        let above = Cgroup::v2(at("pod/a")).frozen_above().unwrap().unwrap();
        let error = above.thaw().unwrap_err();
        assert!(matches!(error, FreezerError::Inhabited(path) if path == at("pod")));
        assert_eq!(
            fs::read_to_string(at("pod/b/cgroup.freeze")).unwrap(),
            "0\n"
        );
    }
}
