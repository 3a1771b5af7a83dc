//! Versions of CRIU.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;
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

    /// Asks a program for its version.
    ///
    /// # Errors
    /// `criu --version` cannot be run or prints no version.
    pub(super) fn of(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        environment::make(&mut command);
        keep_callers_limit(&mut command);
        let output = command.arg("--version").stdin(Stdio::null()).output()?;
        let output_text = String::from_utf8_lossy(&output.stdout);
        Self::parse(&output_text).ok_or_else(|| {
            let program = program.display();
            io::Error::other(format!("{program} --version ended with {}", output.status))
        })
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

#[cfg(test)]
mod tests {
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
}
