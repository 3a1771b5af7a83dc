//! Finds the CRIU that the low-level runtime is to use: the system's or, where that is missing or
//! too old, the one of our package `stasis-criu`.
//!
//! runc starts the first `criu` in `PATH`, and so does libcriu for crun: neither is told another
//! one. So the directory of ours, which is in nobody's `PATH`, precedes the others in the `PATH`
//! that a dump or restore gets.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use stasis_config::is_program;
use stasis_host::environment;

use crate::low_level::criu_version::CriuVersion;

const NAME: &str = "criu";
/// Where our package, or a person from its sources, puts it.
const DIRECTORIES: [&str; 2] = ["/usr/local/lib/stasis/criu", "/usr/lib/stasis/criu"];

/// A CRIU of this machine.
#[derive(Debug)]
pub struct CriuProgram {
    /// Its file.
    pub path: PathBuf,
    /// Its version, or why that is not known.
    pub version: io::Result<CriuVersion>,
    /// Who starts it.
    pub found_by: FoundBy,
}

/// Who finds a CRIU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundBy {
    /// Everybody: it is the first one in `PATH`.
    All,
    /// stasis alone.
    Stasis,
}

impl CriuProgram {
    /// Returns the CRIU of dumps and restores; `None` if there is none.
    #[must_use]
    pub fn installed() -> Option<Self> {
        let directories = DIRECTORIES.map(Path::new);
        Self::chosen(&environment::path(), &directories)
    }

    /// A version that cannot be found out is no reason to take ours: the system's is broken, and
    /// its administrator has to know.
    fn chosen(path: &OsStr, ours: &[&Path]) -> Option<Self> {
        let systems = Self::first(env::split_paths(path), FoundBy::All);
        let is_old =
            |it: &Self| matches!(&it.version, Ok(version) if *version < CriuVersion::NEEDED);
        if systems.as_ref().is_some_and(|it| !is_old(it)) {
            return systems;
        }
        let own = Self::first(ours.iter().copied(), FoundBy::Stasis);
        own.filter(|it| !is_old(it)).or(systems)
    }

    fn first(directories: impl Iterator<Item: AsRef<Path>>, found_by: FoundBy) -> Option<Self> {
        let mut programs = directories.map(|directory| directory.as_ref().join(NAME));
        let path = programs.find(|program| is_program(program))?;
        let version = CriuVersion::of(&path);
        Some(Self {
            path,
            version,
            found_by,
        })
    }

    /// Has a program that starts CRIU find this one.
    fn give(&self, command: &mut Command) {
        let directory = self.path.parent().map(Path::to_owned);
        let path = environment::path();
        let directories = directory.into_iter().chain(env::split_paths(&path));
        if let (FoundBy::Stasis, Ok(path)) = (self.found_by, env::join_paths(directories)) {
            command.env("PATH", path);
        }
    }
}

/// Has a program that starts CRIU, or looks for it, find the one that stasis uses.
pub fn give(command: &mut Command) {
    // Without one of ours no program has to be asked for its version.
    let is_there = |directory: &str| is_program(&Path::new(directory).join(NAME));
    if DIRECTORIES.into_iter().any(is_there)
        && let Some(criu) = CriuProgram::installed()
    {
        criu.give(command);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Writes a `criu` of this version by another process, so that no descriptor of it is open for
    /// writing in a program that another test starts (ETXTBSY).
    fn criu(directory: &Path, said: &str) {
        let write = "mkdir -p \"$0\"; printf '#!/bin/sh\\necho %s\\n' \"$1\" >\"$0/criu\"; \
                     chmod 755 \"$0/criu\"";
        let mut command = Command::new("sh");
        let written = command
            .args(["-ec", write])
            .arg(directory)
            .arg(said)
            .status();
        assert!(written.unwrap().success());
    }

    fn chosen(path: &Path, ours: &Path) -> Option<(PathBuf, FoundBy)> {
        let found = CriuProgram::chosen(path.as_os_str(), &[ours])?;
        Some((found.path, found.found_by))
    }

    #[test]
    fn ours_is_taken_where_the_systems_is_missing_or_too_old() {
        let directory = tempfile::tempdir().unwrap();
        let [systems, ours] = ["systems", "ours"].map(|name| directory.path().join(name));
        assert_eq!(chosen(&systems, &ours), None);
        criu(&ours, "Version: 4.2.1");
        let own = Some((ours.join(NAME), FoundBy::Stasis));
        assert_eq!(chosen(&systems, &ours), own);
        criu(&systems, "Version: 3.17.1");
        assert_eq!(chosen(&systems, &ours), own);
        let the_systems = Some((systems.join(NAME), FoundBy::All));
        for said in ["Version: 4.0", "it is broken"] {
            criu(&systems, said);
            assert_eq!(chosen(&systems, &ours), the_systems, "{said}");
        }
        criu(&systems, "Version: 3.17.1");
        criu(&ours, "Version: 3.19");
        assert_eq!(chosen(&systems, &ours), the_systems);
    }

    #[test]
    fn the_first_program_of_the_path_counts() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
        criu(&two, "Version: 4.0");
        fs::create_dir(&one).unwrap();
        fs::write(one.join(NAME), "").unwrap();
        let path = env::join_paths([&one, &two]).unwrap();
        let found = || CriuProgram::chosen(&path, &[]).unwrap().path;
        assert_eq!(found(), two.join(NAME), "the first is not executable");
        fs::set_permissions(one.join(NAME), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found(), one.join(NAME));
    }

    #[test]
    fn only_ours_changes_the_path() {
        let given = |found_by| {
            let path = "/usr/lib/stasis/criu/criu".into();
            let version = Ok(CriuVersion::NEEDED);
            let mut command = Command::new("runc");
            let criu = CriuProgram {
                path,
                version,
                found_by,
            };
            criu.give(&mut command);
            let mut given = command.get_envs();
            given.find_map(|(name, value)| (name == "PATH").then(|| value.map(OsStr::to_owned)))
        };
        assert_eq!(given(FoundBy::All), None);
        let path = given(FoundBy::Stasis).flatten().unwrap();
        assert_eq!(
            env::split_paths(&path).next().unwrap(),
            Path::new("/usr/lib/stasis/criu")
        );
    }
}
