//! The plugin directory that CRIU is given in place of the distribution's.
//!
//! CRIU's own CUDA plugin would restore and unlock by itself and hide its failures, so it is kept
//! out; every other plugin of the distribution (AMD GPUs) is linked and works as before. CRIU's
//! requests carry no plugin directory; `CRIU_LIBS_DIR` in its environment is the switch
//! (criu/plugin.c), which runc and crun hand on.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use crate::entry;

/// The environment variable that CRIU takes its plugin directory from.
pub const VARIABLE: &str = "CRIU_LIBS_DIR";
/// The plugin that competes with us.
const CUDA_PLUGIN: &str = "cuda_plugin.so";

/// Makes the directory below `state_dir`, or brings it up to date, and gives its path.
///
/// # Errors
/// What the kernel said.
pub fn prepare(state_dir: &Path, distribution: Option<&Path>) -> io::Result<PathBuf> {
    let directory = state_dir.join("criu-plugins");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)?;
    let wanted = match distribution {
        Some(distribution) => plugins_of(distribution)?,
        None => BTreeMap::new(),
    };
    for entry in fs::read_dir(&directory)? {
        let entry = entry?;
        let target = fs::read_link(entry.path()).ok();
        if target.as_ref() != wanted.get(&entry.file_name()) {
            // Two operations may tidy up at the same time.
            entry::remove(&entry.path())?;
        }
    }
    for (name, target) in &wanted {
        match symlink(target, directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(directory)
}

fn plugins_of(distribution: &Path) -> io::Result<BTreeMap<OsString, PathBuf>> {
    let mut plugins = BTreeMap::new();
    let entries = match fs::read_dir(distribution) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(plugins),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if entry.path().extension() == Some(OsStr::new("so")) && name != CUDA_PLUGIN {
            plugins.insert(name, entry.path());
        }
    }
    Ok(plugins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn all_plugins_but_the_cuda_one_are_linked() {
        let (state, distribution) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["amdgpu_plugin.so", CUDA_PLUGIN, "README"] {
            fs::write(distribution.path().join(name), name).unwrap();
        }
        let directory = prepare(state.path(), Some(distribution.path())).unwrap();
        assert_eq!(names(&directory), ["amdgpu_plugin.so"]);
        assert_eq!(
            fs::read_to_string(directory.join("amdgpu_plugin.so")).unwrap(),
            "amdgpu_plugin.so"
        );
    }

    #[test]
    fn it_follows_the_distribution() {
        let (state, distribution) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(distribution.path().join("old.so"), "").unwrap();
        prepare(state.path(), Some(distribution.path())).unwrap();
        fs::remove_file(distribution.path().join("old.so")).unwrap();
        fs::write(distribution.path().join("new.so"), "").unwrap();
        let directory = prepare(state.path(), Some(distribution.path())).unwrap();
        assert_eq!(names(&directory), ["new.so"]);
    }

    #[test]
    fn a_machine_without_plugins_gets_an_empty_directory() {
        let state = tempfile::tempdir().unwrap();
        let missing = state.path().join("missing");
        assert!(names(&prepare(state.path(), Some(&missing)).unwrap()).is_empty());
        assert!(names(&prepare(state.path(), None).unwrap()).is_empty());
    }
}
