//! Finds the low-level runtime (runc or crun).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::exposure::{Others, exposed};
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

crate::words! {
    /// The command line and state format of a low-level runtime.
    #[derive(Deserialize)]
    Flavor {
        /// runc's.
        Runc = "runc",
        /// crun's.
        Crun = "crun",
    }
}

/// An installed low-level runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowLevel {
    /// Its program.
    pub path: PathBuf,
    /// Its kind.
    pub flavor: Flavor,
}

impl Runtime {
    /// Finds the low-level runtime. One whose name is neither runc's nor crun's, and has no flavor
    /// in the settings, is taken for a program in front of runc: nvidia-container-runtime, which
    /// GPU nodes have as a rule, or a script.
    pub fn resolve(&self) -> Result<LowLevel, SettingsError> {
        let path = find(&self.path)?;
        let flavor = self.flavor.or_else(|| flavor_of(&path));
        Ok(with(path, flavor))
    }

    /// Finds another low-level runtime, chosen for one container. The flavor in the settings
    /// applies if the file name names neither runc nor crun.
    pub fn resolve_instead(&self, chosen: &Path) -> Result<LowLevel, SettingsError> {
        let path = find(chosen)?;
        let flavor = flavor_of(&path).or(self.flavor);
        Ok(with(path, flavor))
    }
}

fn with(path: PathBuf, flavor: Option<Flavor>) -> LowLevel {
    LowLevel {
        path,
        flavor: flavor.unwrap_or(Flavor::Runc),
    }
}

/// The program at an absolute path, or of that name in the system's directories.
fn find(path: &Path) -> Result<PathBuf, SettingsError> {
    let found = if path.is_absolute() {
        Some(path.to_owned()).filter(|path| is_program(path))
    } else {
        let candidates = DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(path));
        candidates.into_iter().find(|path| is_program(path))
    };
    let found = found.ok_or_else(|| SettingsError::Runtime {
        path: path.to_owned(),
        what: "is not an executable file",
    })?;
    match exposed(&found) {
        // A group's, or another owner's, is reported alone (`stasis doctor`): some
        // distributions have such directories. One that cannot be looked at cannot be run.
        Ok(Some(exposed)) if exposed.to == Others::All => Err(SettingsError::RuntimeExposed {
            path: found,
            exposed,
        }),
        _ => Ok(found),
    }
}

/// Whether a path is that of an executable file.
#[must_use]
pub fn is_program(path: &Path) -> bool {
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
