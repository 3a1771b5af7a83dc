//! The low-level runtime that does what is not ours.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Runtime, SettingsError};

/// Where a bare name is looked up.
const DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Whose command line and state format a low-level runtime has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    /// runc's.
    Runc,
    /// crun's.
    Crun,
}

/// A low-level runtime that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowLevel {
    /// Its program.
    pub path: PathBuf,
    /// Its kind.
    pub flavor: Flavor,
}

impl Runtime {
    /// Finds the low-level runtime.
    ///
    /// # Errors
    /// [`SettingsError::Runtime`].
    pub fn resolve(&self) -> Result<LowLevel, SettingsError> {
        let wrong = |what| SettingsError::Runtime {
            path: self.path.clone(),
            what,
        };
        let path = if self.path.is_absolute() {
            Some(self.path.clone()).filter(|path| is_program(path))
        } else {
            let candidates = DIRECTORIES
                .iter()
                .map(|directory| Path::new(directory).join(&self.path));
            candidates.into_iter().find(|path| is_program(path))
        };
        let path = path.ok_or_else(|| wrong("is not an executable file"))?;
        let flavor = self.flavor.or_else(|| flavor_of(&path));
        let flavor = flavor.ok_or_else(|| {
            wrong("has a name that is neither runc's nor crun's (set runtime.flavor)")
        })?;
        Ok(LowLevel { path, flavor })
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn flavor_of(path: &Path) -> Option<Flavor> {
    let name = path.file_name()?.to_str()?;
    if name.contains("crun") {
        Some(Flavor::Crun)
    } else if name.contains("runc") {
        Some(Flavor::Runc)
    } else {
        None
    }
}
