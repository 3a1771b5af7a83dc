//! Finds a container by its id, or the name that its engine shows: searches the usual roots of
//! container engines' low-level runtimes.

pub mod engine;
pub mod roots;
pub mod whose;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stasis_config::{Flavor, LowLevel, Settings};
use stasis_engine::container::{Container, ContainerError};
use stasis_engine::context::Context;
use stasis_engine::error::kind::Kind;
use stasis_host::cancel::Cancel;

use crate::engine::Known;
use crate::roots::{ContainerLocation, places, roots};

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
    /// Reads a container.
    ///
    /// # Errors
    /// It cannot be read, or does not run.
    pub fn load(place: &ContainerLocation) -> Result<Self, ContainerError> {
        Ok(Self {
            container: Container::load(place.flavor, &place.root, &place.id)?,
            root: place.root.clone(),
            flavor: place.flavor,
        })
    }

    /// Returns its engine, and its name there.
    pub fn known(&self) -> Known {
        Known::of(&self.container, &self.root)
    }

    /// Makes the context of an operation that does not need the container's low-level runtime.
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
    /// The text cannot be a container's id or name.
    #[error("{0:?} is neither an id nor a name of a container")]
    Invalid(String),
    /// No root has such a container.
    #[error(
        "no running container has the id or name {id}; `stasis ps` lists those with a GPU \
         (searched: {searched}; --root names another root)"
    )]
    NotFound {
        /// The id that was searched for.
        id: String,
        /// The roots that were searched.
        searched: String,
    },
    /// Several containers match.
    #[error("several containers match {id}: {found}; name one by its whole id, or use --root")]
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

impl LocateError {
    /// Returns the kind of the error, for scripts.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Invalid(_) | Self::NotFound { .. } | Self::Ambiguous { .. } => Kind::NoContainer,
            Self::Container(error) => error.kind(),
        }
    }
}

/// Finds a running container by its id, its engine's name or the beginning of its id, in this
/// order, below `root` or all usual roots.
pub fn locate(id: &str, root: Option<&Path>) -> Result<Located, LocateError> {
    if id.is_empty() || id.starts_with(['.', '/']) || id.contains("..") {
        return Err(LocateError::Invalid(id.to_owned()));
    }
    let roots = roots(root);
    let all = places(&roots);
    let of_ids = |matches: &dyn Fn(&str) -> bool| -> Vec<&ContainerLocation> {
        all.iter().filter(|place| matches(&place.id)).collect()
    };
    let mut found = of_ids(&|found| found == id);
    if found.is_empty() {
        found = all.iter().filter(|place| is_named(place, id)).collect();
    }
    if found.is_empty() {
        found = of_ids(&|found| found.starts_with(id));
    }
    match found.as_slice() {
        [] => Err(LocateError::NotFound {
            id: id.to_owned(),
            searched: join(roots.iter().map(PathBuf::as_path)),
        }),
        [place] => Ok(Located::load(place)?),
        several => {
            let directories: Vec<_> = several
                .iter()
                .map(|place| place.root.join(&place.id))
                .collect();
            Err(LocateError::Ambiguous {
                id: id.to_owned(),
                found: join(directories.iter().map(PathBuf::as_path)),
            })
        }
    }
}

/// Returns the name of a container, or its id if it does not run or has no name.
pub fn called(id: &str, root: &Path) -> String {
    let located = locate(id, Some(root)).ok();
    let name = located.and_then(|located| located.known().name);
    name.unwrap_or_else(|| id.to_owned())
}

/// Returns all running containers below `root` or all usual roots. Leaves out a container whose
/// state cannot be read: it may just be made or deleted.
#[must_use]
pub fn running(root: Option<&Path>) -> Vec<Located> {
    let all = places(&roots(root)).into_iter();
    all.filter_map(|place| Located::load(&place).ok()).collect()
}

fn is_named(place: &ContainerLocation, name: &str) -> bool {
    let located = Located::load(place);
    located.is_ok_and(|located| located.known().name.as_deref() == Some(name))
}

fn join<'p>(paths: impl Iterator<Item = &'p Path>) -> String {
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        let all = places(&roots);
        assert_eq!(all.len(), 2, "a directory without a state is no container");
        assert_eq!(all[0].flavor, Flavor::Runc);
        assert_eq!(all[1].flavor, Flavor::Crun);
        // The container of that whole id is taken, and cannot be read.
        let error = locate("job", Some(root.path())).unwrap_err();
        assert!(matches!(error, LocateError::Container(_)), "{error}");
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
        for id in ["", "..", "/a", "a/../b"] {
            assert!(matches!(
                locate(id, Some(root.path())),
                Err(LocateError::Invalid(_))
            ));
        }
    }
}
