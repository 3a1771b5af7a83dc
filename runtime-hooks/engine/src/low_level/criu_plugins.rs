//! Makes the plugin directory that CRIU uses in place of the distribution's.
//!
//! CRIU's own CUDA plugin would restore and unlock by itself and hide its failures, so it is kept
//! out; every other plugin of the distribution (AMD GPUs) is linked and works as before. Our own,
//! which moves bulk memory, is in a second such directory, for the operations that use it: no other
//! CRIU finds it. CRIU's requests carry no plugin directory; `CRIU_LIBS_DIR` in its environment is
//! the switch (criu/plugin.c), which runc and crun pass on.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use stasis_linux::directory::Directory;
use stasis_linux::file;
use stasis_memory_store::REQUEST_VARIABLE;

use crate::container::mounted::Mounted;
use crate::low_level::post_dump;

/// The environment variable that CRIU takes its plugin directory from.
pub(crate) const VARIABLE: &str = "CRIU_LIBS_DIR";
/// CRIU's own plugin, which competes with stasis.
const CUDA_PLUGIN: &str = "cuda_plugin.so";
/// The name of our plugin in that directory.
const MEMORY_PLUGIN: &str = "libstasis_memory.so";

/// The environment variables for CRIU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Environment<'a> {
    /// Its plugin directory.
    pub(crate) plugins: &'a Path,
    /// The request to our plugin, if there is one.
    pub(crate) memory_request: Option<&'a Path>,
    /// Its configuration file, if it gets one of ours.
    pub(crate) configuration: Option<&'a Path>,
    /// The CUDA processes that no image has, by their pids in the container: for the script that
    /// such a file names.
    pub(crate) not_dumped: &'a [i32],
    /// The directories whose files that script puts into the image, or tells of there.
    pub(crate) mounted: &'a [Mounted],
}

impl Environment<'_> {
    /// Gives it to a program that will start CRIU.
    pub(crate) fn give(&self, command: &mut Command) {
        command.env(VARIABLE, self.plugins);
        match self.memory_request {
            Some(request) => command.env(REQUEST_VARIABLE, request),
            // Another's value must not reach the plugin.
            None => command.env_remove(REQUEST_VARIABLE),
        };
        if let Some(configuration) = self.configuration {
            command.env(post_dump::VARIABLE, configuration);
            post_dump::tell(command, self.not_dumped, self.mounted);
        }
    }
}

/// Makes the directory below `state_dir`, or updates it, and returns its path. `memory` is our own
/// plugin, for operations that use it.
pub(crate) fn prepare(
    state_dir: &Path,
    distribution: Option<&Path>,
    memory: Option<&Path>,
) -> io::Result<PathBuf> {
    // Operations with and without our plugin may run at the same time.
    let directory = state_dir.join(match memory {
        Some(_) => "criu-plugins-memory",
        None => "criu-plugins",
    });
    Directory::make(state_dir, 0o700)?;
    Directory::make(&directory, 0o700)?;
    let mut wanted = match distribution {
        Some(distribution) => plugins_of(distribution)?,
        None => BTreeMap::new(),
    };
    wanted.extend(memory.map(|plugin| (MEMORY_PLUGIN.into(), plugin.to_owned())));
    for entry in fs::read_dir(&directory)? {
        let entry = entry?;
        let target = fs::read_link(entry.path()).ok();
        if target.as_ref() != wanted.get(&entry.file_name()) {
            // Two operations may tidy up at the same time.
            file::remove(&entry.path())?;
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
    for entry in file::entries(distribution)? {
        let entry = entry?;
        let name = entry.file_name();
        let has_no_place = name == CUDA_PLUGIN || name == MEMORY_PLUGIN;
        if entry.path().extension() == Some(OsStr::new("so")) && !has_no_place {
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
        for name in ["amdgpu_plugin.so", CUDA_PLUGIN, MEMORY_PLUGIN, "README"] {
            fs::write(distribution.path().join(name), name).unwrap();
        }
        let directory = prepare(state.path(), Some(distribution.path()), None).unwrap();
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
        prepare(state.path(), Some(distribution.path()), None).unwrap();
        fs::remove_file(distribution.path().join("old.so")).unwrap();
        fs::write(distribution.path().join("new.so"), "").unwrap();
        let directory = prepare(state.path(), Some(distribution.path()), None).unwrap();
        assert_eq!(names(&directory), ["new.so"]);
    }

    #[test]
    fn a_machine_without_plugins_gets_an_empty_directory() {
        let state = tempfile::tempdir().unwrap();
        let missing = state.path().join("missing");
        assert!(names(&prepare(state.path(), Some(&missing), None).unwrap()).is_empty());
        assert!(names(&prepare(state.path(), None, None).unwrap()).is_empty());
    }

    #[test]
    fn ours_is_in_a_directory_of_its_own() {
        let (state, distribution) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(distribution.path().join("other.so"), "").unwrap();
        let ours = Path::new("/opt/stasis/libstasis_memory.so");
        let with = prepare(state.path(), Some(distribution.path()), Some(ours)).unwrap();
        let without = prepare(state.path(), Some(distribution.path()), None).unwrap();
        assert_eq!(names(&with), [MEMORY_PLUGIN, "other.so"]);
        assert_eq!(fs::read_link(with.join(MEMORY_PLUGIN)).unwrap(), ours);
        assert_eq!(names(&without), ["other.so"]);
    }

    #[test]
    fn a_request_of_somebody_else_is_not_handed_on() {
        let request_of = |memory_request| {
            let mut command = Command::new("criu");
            command.env(REQUEST_VARIABLE, "/theirs");
            let plugins = Path::new("/plugins");
            Environment {
                plugins,
                memory_request,
                configuration: None,
                not_dumped: &[],
                mounted: &[],
            }
            .give(&mut command);
            command
                .get_envs()
                .find(|(name, _)| *name == REQUEST_VARIABLE)
                .and_then(|(_, value)| value.map(PathBuf::from))
        };
        assert_eq!(request_of(None), None);
        assert_eq!(request_of(Some(Path::new("/ours"))), Some("/ours".into()));
    }
}
