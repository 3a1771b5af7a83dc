//! Finds a container by its id alone: searches the usual roots of container engines' low-level
//! runtimes.

use std::fs;
use std::path::{Path, PathBuf};

use std::time::SystemTime;

use stasis_config::{Flavor, LowLevel, Settings};

use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::host::cancel::Cancel;

/// The defaults of runc and crun, which podman and CRI-O also use.
const ROOTS: [&str; 2] = ["/run/runc", "/run/crun"];
/// containerd has one root for each namespace.
const CONTAINERD: &str = "/run/containerd/runc";
/// Docker has a directory for each runtime, and in it one root for each namespace.
const DOCKER: &str = "/run/docker";
const DOCKER_RUNTIME: &str = "runtime-";

/// A container and where it was found.
#[derive(Debug)]
pub struct Located {
    /// The running container.
    pub container: Container,
    /// The root of its low-level runtime.
    pub root: PathBuf,
    /// The low-level runtime that created it.
    pub flavor: Flavor,
}

impl Located {
    /// The context of an operation that does not need the container's low-level runtime.
    #[must_use]
    pub fn context(&self, settings: Settings, cancel: Cancel) -> Context {
        let low_level = LowLevel {
            path: settings.runtime.path.clone(),
            flavor: self.flavor,
        };
        Context {
            settings,
            low_level,
            root: self.root.clone(),
            cancel,
            began: SystemTime::now(),
        }
    }
}

/// Why there is not exactly one container of that id.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// The text cannot be a container's id.
    #[error("{0:?} is not a container id")]
    Invalid(String),
    /// No root has such a container.
    #[error(
        "no container {id} below {searched}; give its id (not a name that its engine shows), or \
         its root with --root"
    )]
    NotFound {
        /// The id that was searched for.
        id: String,
        /// The roots that were searched.
        searched: String,
    },
    /// Several containers match.
    #[error("there are several containers {id}: {found}; say which with --root or the whole id")]
    Ambiguous {
        /// The id that was searched for.
        id: String,
        /// Their state directories.
        found: String,
    },
    /// The container cannot be read, or does not run.
    #[error(transparent)]
    Container(#[from] ContainerError),
}

/// Finds a running container by its id or the beginning of it, below `root` or all usual roots.
///
/// # Errors
/// [`LocateError`].
pub fn locate(id: &str, root: Option<&Path>) -> Result<Located, LocateError> {
    if id.is_empty() || id.contains('/') || id.starts_with('.') {
        return Err(LocateError::Invalid(id.to_owned()));
    }
    let roots = root.map_or_else(usual_roots, |root| vec![root.to_owned()]);
    let mut found = matching(&roots, |name| name == id);
    if found.is_empty() {
        found = matching(&roots, |name| name.starts_with(id));
    }
    let join = |paths: &[PathBuf]| {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        paths.join(", ")
    };
    match found.as_slice() {
        [] => Err(LocateError::NotFound {
            id: id.to_owned(),
            searched: join(&roots),
        }),
        [(root, name, flavor)] => Ok(Located {
            container: Container::load(*flavor, root, name)?,
            root: root.clone(),
            flavor: *flavor,
        }),
        several => Err(LocateError::Ambiguous {
            id: id.to_owned(),
            found: join(
                &several
                    .iter()
                    .map(|(root, name, _)| root.join(name))
                    .collect::<Vec<_>>(),
            ),
        }),
    }
}

fn usual_roots() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ROOTS.iter().map(PathBuf::from).collect();
    roots.extend(children(Path::new(CONTAINERD)));
    let runtimes = children(Path::new(DOCKER)).into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(DOCKER_RUNTIME)
    });
    roots.extend(runtimes.flat_map(|runtime| children(&runtime)));
    roots
}

/// The containers below all roots whose id matches.
fn matching(roots: &[PathBuf], matches: impl Fn(&str) -> bool) -> Vec<(PathBuf, String, Flavor)> {
    let mut found = Vec::new();
    for root in roots {
        for directory in children(root) {
            let Some(name) = directory.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let flavor = flavor_of(&directory).filter(|_| matches(name));
            found.extend(flavor.map(|flavor| (root.clone(), name.to_owned(), flavor)));
        }
    }
    found
}

/// Which low-level runtime wrote a container's directory.
fn flavor_of(directory: &Path) -> Option<Flavor> {
    if directory.join("state.json").is_file() {
        return Some(Flavor::Runc);
    }
    let is_crun = directory.join("status").is_file();
    is_crun.then_some(Flavor::Crun)
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.sort_unstable();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(root: &Path, id: &str, file: &str) {
        fs::create_dir_all(root.join(id)).unwrap();
        fs::write(root.join(id).join(file), "{}").unwrap();
    }

    #[test]
    fn the_whole_id_comes_before_the_beginning_of_others() {
        let root = tempfile::tempdir().unwrap();
        let roots = [root.path().to_owned()];
        container(root.path(), "job", "state.json");
        container(root.path(), "job-2", "status");
        fs::create_dir(root.path().join("job-3")).unwrap();
        let exact = matching(&roots, |name| name == "job");
        assert_eq!(exact.len(), 1);
        assert_eq!(exact[0].2, Flavor::Runc);
        let all = matching(&roots, |name| name.starts_with("job"));
        assert_eq!(all.len(), 2, "a directory without a state is no container");
        assert_eq!(all[1].2, Flavor::Crun);
    }

    #[test]
    fn what_is_not_there_or_not_alone_is_said_with_where() {
        let root = tempfile::tempdir().unwrap();
        container(root.path(), "job-1", "state.json");
        container(root.path(), "job-2", "state.json");
        let said = |id| locate(id, Some(root.path())).unwrap_err().to_string();
        let place = root.path().display().to_string();
        assert!(said("other").contains(&place), "{}", said("other"));
        let several = said("job");
        assert!(
            several.contains("job-1") && several.contains("job-2"),
            "{several}"
        );
        for id in ["", "..", "a/b"] {
            assert!(matches!(
                locate(id, Some(root.path())),
                Err(LocateError::Invalid(_))
            ));
        }
    }
}
