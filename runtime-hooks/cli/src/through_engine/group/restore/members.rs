//! The containers of a restore, in the order in which their operations are begun.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stasis_config::{LowLevel, Settings};
use stasis_engine::context::Context;
use stasis_engine::low_level::default_root;
use stasis_group::file::{self, GroupMember, NewGroup};
use stasis_group::parent::Child;
use stasis_host::cancel::Cancel;

use super::{RestoreWanted, unusable};
use crate::command_error::{CommandError, GroupError};
use crate::through_engine::checkpoint_way::stasis_runtime;
use crate::through_engine::command::EngineCommand;

/// A container.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) image: PathBuf,
    pub(super) bundle: PathBuf,
    pub(super) root: PathBuf,
    low_level: LowLevel,
    described: GroupMember,
}

/// Finds them in the file of a complete group, each with the bundle that was named for it.
pub(super) fn find(
    settings: &Settings,
    wanted: &RestoreWanted<'_>,
    directory: &Path,
) -> Result<Vec<Member>, CommandError> {
    let file = file::find(directory).map_err(unusable(directory))?;
    let file = file.ok_or_else(|| GroupError::NoGroup(directory.to_owned()))?;
    let mut bundles = bundles(wanted.bundles)?;
    let low_level = settings.runtime.resolve()?;
    let root = wanted.root.map(Path::to_owned);
    let root = root.unwrap_or_else(|| default_root(low_level.flavor));
    let root = std::path::absolute(&root).map_err(unusable(directory))?;
    let mut members = Vec::new();
    for found in file.containers {
        refuse_others(directory, &found)?;
        let name = found.name.clone().unwrap_or_else(|| found.id.clone());
        let bundle = bundles.remove(&found.id).or_else(|| bundles.remove(&name));
        let bundle = bundle.ok_or_else(|| GroupError::NoBundle {
            name: name.clone(),
            engine: found.engine.clone(),
        })?;
        members.push(Member {
            name,
            image: directory.join(&found.image),
            bundle,
            root: root.clone(),
            low_level: low_level.clone(),
            id: found.id.clone(),
            described: GroupMember {
                root: root.clone(),
                engine: None,
                ..found
            },
        });
    }
    if let Some((other, _)) = bundles.pop_first() {
        return Err(GroupError::NotOfGroup(other, directory.to_owned()).into());
    }
    members.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(members)
}

/// Parses "NAME=DIRECTORY" of each container.
fn bundles(given: &[PathBuf]) -> Result<BTreeMap<String, PathBuf>, GroupError> {
    let mut bundles = BTreeMap::new();
    for text in given {
        let malformed = || GroupError::Bundle(text.display().to_string());
        let (name, bundle) = text
            .to_str()
            .and_then(|text| text.split_once('='))
            .ok_or_else(malformed)?;
        let bundle = std::path::absolute(bundle).map_err(|_| malformed())?;
        if bundles.insert(name.to_owned(), bundle).is_some() {
            return Err(GroupError::Twice(name.to_owned(), name.to_owned()));
        }
    }
    Ok(bundles)
}

/// Refuses a malformed entry. Another user may have written the file: it must name no path outside
/// of its directory, and no option of the runtime.
fn refuse_others(directory: &Path, found: &GroupMember) -> Result<(), GroupError> {
    let is_name = |text: &str| {
        let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
        text.bytes().all(may_be) && !text.is_empty() && !text.starts_with(['-', '.'])
    };
    match is_name(&found.id) && is_name(&found.image) {
        true => Ok(()),
        false => Err(GroupError::Malformed(directory.to_owned())),
    }
}

impl Member {
    /// Describes it for the file that decides the outcome.
    pub(super) fn describe(&self) -> GroupMember {
        self.described.clone()
    }

    /// Finds the runtime for its restore.
    pub(super) fn runtime(
        &self,
        settings: &Settings,
        config: Option<&Path>,
    ) -> Result<EngineCommand, GroupError> {
        let runtime = stasis_runtime(settings, self.low_level.flavor, config);
        runtime.map_err(|no_way| GroupError::NoRuntime(no_way.to_string()))
    }

    /// Makes the command of its restore.
    pub(super) fn child(
        &self,
        settings: &Settings,
        runtime: EngineCommand,
        group: &NewGroup,
    ) -> Child {
        let command = runtime
            .with("--stasis-group")
            .with(group.pending())
            .with("--root")
            .with(&self.root)
            .with_all(["restore", "--detach", "--bundle"])
            .with(&self.bundle)
            .with("--image-path")
            .with(&self.image)
            // The image may be on a read-only disk.
            .with("--work-path")
            .with(&self.bundle)
            .with(&self.id);
        Child {
            name: self.name.clone(),
            command: command.command(),
            context: Context {
                settings: settings.clone(),
                low_level: self.low_level.clone(),
                root: self.root.clone(),
                cancel: Cancel::not_needed(),
                began: SystemTime::now(),
            },
            container: self.id.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, image: &str) -> GroupMember {
        GroupMember {
            id: id.to_owned(),
            root: "/run/runc".into(),
            name: None,
            engine: None,
            image: image.to_owned(),
        }
    }

    #[test]
    fn a_file_names_nothing_outside_of_its_directory() {
        let refused = |id, image| refuse_others(Path::new("/images"), &member(id, image)).is_err();
        assert!(!refused("job-1", "main"));
        for other in [
            "",
            "..",
            ".stasis-new",
            "../b",
            "a/b",
            "-x",
            "--root",
            "a b",
        ] {
            assert!(refused(other, "main"), "{other}");
            assert!(refused("job-1", other), "{other}");
        }
    }

    #[test]
    fn each_bundle_is_a_containers() {
        let given = |all: &[&str]| {
            let all: Vec<PathBuf> = all.iter().map(PathBuf::from).collect();
            bundles(&all)
        };
        let found = given(&["a=/run/a", "b=/run/b=c"]).unwrap();
        assert_eq!(found["b"], PathBuf::from("/run/b=c"));
        assert!(matches!(given(&["/run/a"]), Err(GroupError::Bundle(_))));
        let twice = given(&["a=/1", "a=/2"]);
        assert!(matches!(twice, Err(GroupError::Twice(..))));
    }
}
