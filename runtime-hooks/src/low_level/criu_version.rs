//! Finds the CRIU that the low-level runtime will use, and its version.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use stasis_linux::file::{self, Access, Durability};
use stasis_linux::open_files::keep_callers_limit;

use crate::host::environment;

/// The record of the last query, below the state directory.
const RECORD: &str = "criu-version.json";
/// One path and some numbers.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// A version of CRIU: major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CriuVersion {
    major: u32,
    minor: u32,
}

/// A program file and its version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    path: PathBuf,
    inode: u64,
    bytes: u64,
    modified: i64,
    modified_ns: i64,
    version: CriuVersion,
}

impl CriuVersion {
    /// The first one whose plugins have all the hooks that ours needs.
    pub const WITH_HOOKS: Self = Self { major: 4, minor: 0 };

    /// Asks the CRIU that runc and crun find, which is the first one in `PATH`; `None` if there is
    /// none. Its answer is kept in the state directory for as long as the file does not change.
    ///
    /// # Errors
    /// `criu --version` cannot be run or prints no version.
    pub fn installed(state_dir: &Path) -> io::Result<Option<Self>> {
        let Some(program) = find(&environment::path()) else {
            return Ok(None);
        };
        let metadata = program.metadata()?;
        let of = |version| Record {
            path: program.clone(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            version,
        };
        let path = state_dir.join(RECORD);
        if let Ok(known) = read(&path)
            && known == of(known.version)
        {
            return Ok(Some(known.version));
        }
        let version = query(&program)?;
        // Without the record the next operation runs `criu --version` again.
        let _ = write(&path, &of(version));
        Ok(Some(version))
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
    let is_program =
        |metadata: fs::Metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    programs
        .into_iter()
        .find(|program| program.metadata().is_ok_and(is_program))
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

fn read(path: &Path) -> io::Result<Record> {
    let text = file::read(path, MAX_RECORD_BYTES)?.ok_or(io::ErrorKind::NotFound)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Replaces the record. An operation on another container may do so at the same time: a record that
/// is not whole is not read, and made again.
fn write(path: &Path, record: &Record) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    file::replace(path, &text, Access::Private, Durability::Volatile)
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
        assert!(old < CriuVersion::WITH_HOOKS);
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

    #[test]
    fn an_answer_is_kept_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let record = Record {
            path: "/usr/sbin/criu".into(),
            inode: 1,
            bytes: 2,
            modified: 3,
            modified_ns: 4,
            version: CriuVersion::WITH_HOOKS,
        };
        let file = directory.path().join(RECORD);
        write(&file, &record).unwrap();
        assert_eq!(read(&file).unwrap(), record);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
