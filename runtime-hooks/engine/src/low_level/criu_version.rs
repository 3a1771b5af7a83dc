//! Finds the CRIU that the low-level runtime will use, and its version.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use stasis_config::is_program;
use stasis_host::environment;
use stasis_linux::open_files::keep_callers_limit;

/// A version of CRIU: major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CriuVersion {
    major: u32,
    minor: u32,
}

impl CriuVersion {
    /// The first version that stasis uses: its plugins have all the hooks that ours needs, and it
    /// resumes the tasks of a dump if its action script fails.
    pub const NEEDED: Self = Self { major: 4, minor: 0 };

    /// Asks the CRIU that runc and crun find, which is the first one in `PATH`; `None` if there is
    /// none.
    ///
    /// # Errors
    /// `criu --version` cannot be run or prints no version.
    pub fn installed() -> io::Result<Option<Self>> {
        let program = find(&environment::path());
        program.map(|program| query(&program)).transpose()
    }

    fn parse(text: &str) -> Option<Self> {
        let version = text
            .lines()
            .find_map(|line| line.strip_prefix("Version:"))?;
        let mut parts = version.trim().split(['.', '-', ' ', '(']);
        Some(Self {
            major: parts.next()?.parse().ok()?,
            minor: parts.next().and_then(|part| part.parse().ok()).unwrap_or(0),
        })
    }
}

impl fmt::Display for CriuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

fn find(path: &OsStr) -> Option<PathBuf> {
    let programs = env::split_paths(path).map(|directory| directory.join("criu"));
    programs.into_iter().find(|program| is_program(program))
}

fn query(program: &Path) -> io::Result<CriuVersion> {
    let mut command = Command::new(program);
    environment::make(&mut command);
    keep_callers_limit(&mut command);
    let output = command.arg("--version").stdin(Stdio::null()).output()?;
    let output_text = String::from_utf8_lossy(&output.stdout);
    CriuVersion::parse(&output_text).ok_or_else(|| {
        let program = program.display();
        io::Error::other(format!("{program} --version ended with {}", output.status))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn its_answer_is_understood() {
        let version = |said| CriuVersion::parse(said).map(|version| version.to_string());
        assert_eq!(version("Version: 4.2.1\n").as_deref(), Some("4.2"));
        assert_eq!(
            version("Version: 4.0\nGitID: v4.0-3-gabc\n").as_deref(),
            Some("4.0")
        );
        assert_eq!(
            version("Version: 3.17.1 (gitid 0)").as_deref(),
            Some("3.17")
        );
        assert_eq!(version("Version: 5-dev").as_deref(), Some("5.0"));
        assert_eq!(version("criu: not found"), None);
        let old = CriuVersion::parse("Version: 3.19").unwrap();
        assert!(old < CriuVersion::NEEDED);
    }

    #[test]
    fn the_first_program_of_the_path_counts() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        for place in [&one, &two] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("criu"), "").unwrap();
        }
        let path = env::join_paths([&one, &two]).unwrap();
        assert_eq!(find(&path), None, "not executable");
        fs::set_permissions(two.join("criu"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(&path), Some(two.join("criu")));
    }
}
