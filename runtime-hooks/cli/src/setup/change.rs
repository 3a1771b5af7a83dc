//! A file of an engine, before and after.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use similar::TextDiff;
use stasis_linux::file::{self, Access, Durability};

use super::{Changed, SetupError};

/// Settings of engines are written by people, or by a tool for a few entries: they are short.
const MOST_BYTES: u64 = 1 << 20;

/// The change of a file.
#[derive(Debug)]
pub(super) struct Change {
    path: PathBuf,
    before: Option<String>,
    /// The new contents; `None`: no file.
    after: Option<String>,
}

impl Change {
    pub(super) fn of(path: &Path, before: Option<String>, after: Option<String>) -> Self {
        Self {
            path: path.to_owned(),
            before,
            after,
        }
    }

    /// Returns whether there is a change: a file that has the new contents is not touched.
    pub(super) fn is_one(&self) -> bool {
        self.before != self.after
    }

    pub(super) fn shown(&self) -> Changed {
        let text = |side: &Option<String>| side.clone().unwrap_or_default();
        let name = |side: &Option<String>| match side {
            Some(_) => self.path.display().to_string(),
            None => "/dev/null".to_owned(),
        };
        let (before, after) = (text(&self.before), text(&self.after));
        let difference = TextDiff::from_lines(&before, &after)
            .unified_diff()
            .header(&name(&self.before), &name(&self.after))
            .to_string();
        Changed {
            path: self.path.clone(),
            difference,
        }
    }

    /// Writes the file in one step, so that an engine reads the old contents or the new ones. Where
    /// a link leads to the file, the link stays.
    pub(super) fn write(&self) -> Result<(), SetupError> {
        let written = match &self.after {
            None => fs::remove_file(&self.path),
            Some(after) => self.replace(after),
        };
        written.map_err(|source| SetupError::File {
            what: "write",
            path: self.path.clone(),
            source,
        })
    }

    fn replace(&self, after: &str) -> io::Result<()> {
        let contents = after.as_bytes();
        if self.before.is_some() {
            let path = fs::canonicalize(&self.path)?;
            return file::replace(&path, contents, Access::AsBefore, Durability::Durable);
        }
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        file::replace(&self.path, contents, Access::Public, Durability::Durable)
    }
}

/// Reads a file of an engine; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, SetupError> {
    let read = || {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let bytes = file::read_limited(&file, MOST_BYTES)?;
        let text = String::from_utf8(bytes);
        text.map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    };
    read().map_err(|source| SetupError::File {
        what: "read",
        path: path.to_owned(),
        source,
    })
}
