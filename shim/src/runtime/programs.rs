//! Where the runtimes' programs are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use containerd_shim::api::Options;
use stasis_config::{Settings, SettingsError, is_program};
use stasis_linux::error_chain;

use crate::error::{Error, Result};

/// The program for all verbs that concern GPU state.
pub(crate) const STASIS_RUNTIME: &str = "stasis-runtime";

/// `stasis-runtime`: beside this shim, where both are installed, else on the PATH.
pub(super) fn find_stasis_runtime() -> PathBuf {
    let beside = std::env::current_exe().map(|own| own.with_file_name(STASIS_RUNTIME));
    beside
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(STASIS_RUNTIME))
}

/// Whether the low-level runtime that a caller chose is `stasis-runtime` itself.
pub(super) fn is_stasis_runtime(program: &Path) -> bool {
    program.file_name() == Some(OsStr::new(STASIS_RUNTIME))
}

/// A low-level runtime.
#[derive(Debug)]
pub(super) enum LowLevel {
    /// The one of the settings, which `stasis-runtime` finds by itself.
    OfSettings(PathBuf),
    /// Another, which it has to be told.
    Named(PathBuf),
}

impl LowLevel {
    /// Its program.
    pub(super) fn program(&self) -> &Path {
        match self {
            LowLevel::OfSettings(program) | LowLevel::Named(program) => program,
        }
    }
}

/// The low-level runtime that the caller chose, else that of the settings. If the settings name
/// none that exists, the one that containerd itself would find on its PATH: no container may fail
/// to start, and none may stay when its shim has died, because of this file.
pub(super) fn find_low_level(options: &Options) -> Result<LowLevel> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !options.binary_name.is_empty() {
        return Ok(LowLevel::Named(named(&options.binary_name, &path)));
    }
    of_settings(None)
        .map(LowLevel::OfSettings)
        .or_else(|error| {
            let none = || Error::Other(error_chain(&error));
            let found = on_path("runc", &path).ok_or_else(none)?;
            log::warn!(
                "the settings name no low-level runtime that exists; {} is used",
                found.display()
            );
            Ok(LowLevel::Named(found))
        })
}

/// The program of a name that the caller chose. `stasis-runtime` has to find the same, and has
/// another PATH.
fn named(name: &str, path: &OsStr) -> PathBuf {
    let found = (!name.contains('/')).then(|| on_path(name, path)).flatten();
    found.unwrap_or_else(|| PathBuf::from(name))
}

fn on_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    let candidates = std::env::split_paths(path).map(|directory| directory.join(name));
    let mut absolute = candidates.filter(|candidate| candidate.is_absolute());
    absolute.find(|candidate| is_program(candidate))
}

/// Returns the low-level runtime of the settings. A mistake elsewhere in the file must not prevent
/// starting or deleting a container; `stasis-runtime` refuses verbs that need all settings.
fn of_settings(file: Option<&Path>) -> Result<PathBuf, SettingsError> {
    let (settings, error) = Settings::load_usable(file);
    if let Some(error) = error {
        log::warn!("{}", error_chain(&error));
    }
    Ok(settings.runtime.resolve()?.path)
}

/// The settings' deadline for resuming a container whose checkpoint's caller has gone.
pub(crate) fn resume_deadline() -> Option<Duration> {
    Settings::load_usable(None).0.deadlines.resume()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_bare_name_is_looked_up_where_containerd_does() {
        let directory = tempfile::tempdir().unwrap();
        let expected = directory.path().join("runc");
        fs::write(&expected, "").unwrap();
        fs::set_permissions(&expected, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(directory.path().join("no-program"), "").unwrap();
        let path = std::env::join_paths([Path::new("relative"), Path::new("/nonexistent")]);
        assert_eq!(on_path("runc", &path.unwrap()), None);
        let path = std::env::join_paths([Path::new("/nonexistent"), directory.path()]);
        let path = path.unwrap();
        assert_eq!(on_path("runc", &path), Some(expected.clone()));
        assert_eq!(on_path("no-program", &path), None);
        assert_eq!(named("runc", &path), expected);
        for as_it_is in ["no-runc", "no-program", "./runc", "/usr/bin/runc"] {
            assert_eq!(named(as_it_is, &path), Path::new(as_it_is));
        }
    }

    #[test]
    fn a_mistake_in_another_table_keeps_the_low_level_runtime() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let runc = write("runc", "", 0o755);
        let text = format!(
            "runtime.path = \"{}\"\n[deadlines]\nlock_mss = 1\n",
            runc.display()
        );
        let settings = write("stasis.toml", &text, 0o644);
        assert_eq!(of_settings(Some(&settings)).unwrap(), runc);
    }
}
