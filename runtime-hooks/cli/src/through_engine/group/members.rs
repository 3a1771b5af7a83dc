//! The containers of a group, in the order in which their operations are begun: two groups that
//! overlap cannot wait for each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_group::file::{GroupMember, NewGroup};
use stasis_group::member::Ended;
use stasis_group::parent::Child;
use stasis_host::cancel::Cancel;
use stasis_locate::engine::{Engine, Known};
use stasis_locate::{Located, locate, running};

use super::GroupWanted;
use super::row::Row;
use crate::command_error::{CommandError, GroupError};
use crate::through_engine::checkpoint_way::stasis_runtime;
use crate::through_engine::command::EngineCommand;
use crate::through_engine::criu_options::{of_checkpoint, words};
use crate::through_engine::no_way::NoWay;

/// A container.
#[derive(Debug)]
pub(super) struct Member {
    /// Its name on the command line.
    pub(super) name: String,
    pub(super) located: Located,
    pub(super) known: Known,
    /// The directory for its image.
    pub(super) image: PathBuf,
    directory: String,
}

impl Member {
    /// Finds the runtime for its checkpoint.
    pub(super) fn runtime(
        &self,
        settings: &Settings,
        wanted: &GroupWanted<'_>,
    ) -> Result<EngineCommand, GroupError> {
        let flavor = self.located.flavor;
        let admitted = of_checkpoint(None, flavor).admit(wanted.options);
        let runtime = admitted.map_err(NoWay::from);
        let runtime = runtime.and_then(|()| stasis_runtime(settings, flavor, wanted.config));
        runtime.map_err(|no_way| GroupError::NoRuntime(no_way.to_string()))
    }

    /// Makes the command of its checkpoint. It leaves the container frozen: a dump that ends it
    /// could not be taken back.
    pub(super) fn child(
        &self,
        settings: &Settings,
        runtime: EngineCommand,
        wanted: &GroupWanted<'_>,
        group: &NewGroup,
    ) -> Child {
        let id = self.located.container.id();
        let command = runtime
            .with("--stasis-group")
            .with(group.pending())
            .with("--root")
            .with(&self.located.root)
            .with_all(["checkpoint", "--image-path"])
            .with(&self.image)
            .with_all(words(wanted.options))
            .with("--leave-running")
            .with(id);
        Child {
            name: self.name.clone(),
            command: command.command(),
            context: self.located.context(settings.clone(), Cancel::not_needed()),
            container: id.to_owned(),
        }
    }

    /// Makes its row, with an image if all are complete.
    pub(super) fn row(&self, is_complete: bool, ended: Ended) -> Row {
        let image = is_complete.then(|| self.image.clone());
        let id = self.located.container.id();
        Row::of(&self.name, id, self.known.engine, image, ended)
    }

    /// Describes it for the group's file.
    pub(super) fn describe(&self) -> GroupMember {
        GroupMember {
            id: self.located.container.id().to_owned(),
            root: self.located.root.clone(),
            name: self.known.name.clone(),
            engine: self.known.engine.map(|engine| engine.to_string()),
            image: self.directory.clone(),
        }
    }
}

/// Finds the containers, sorted by their ids.
pub(super) fn find(
    wanted: &GroupWanted<'_>,
    directory: &Path,
) -> Result<Vec<Member>, CommandError> {
    let mut found = match wanted.pod {
        Some(pod) => of_pod(pod)?,
        None => Vec::new(),
    };
    for name in wanted.names {
        found.push((name.clone(), locate(name, wanted.root)?));
    }
    let id = |located: &Located| (located.container.id().to_owned(), located.root.clone());
    found.sort_by_key(|(_, located)| id(located));
    for pair in found.windows(2) {
        if let [(one, first), (other, second)] = pair
            && id(first) == id(second)
        {
            return Err(GroupError::Twice(one.clone(), other.clone()).into());
        }
    }
    let mut taken = BTreeSet::new();
    let with_place = |(name, located): (String, Located)| {
        let known = located.known();
        let own = last_part(known.name.as_deref().unwrap_or(&name));
        let own = own.filter(|own| !taken.contains(own));
        let own = own.unwrap_or_else(|| format!("{}.{}", located.container.id(), taken.len()));
        taken.insert(own.clone());
        Member {
            name,
            image: directory.join(&own),
            directory: own,
            known,
            located,
        }
    };
    Ok(found.into_iter().map(with_place).collect())
}

/// Returns the name in its pod, if it can be a directory's.
fn last_part(name: &str) -> Option<String> {
    let last = name.rsplit('/').next()?;
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let is_name = last.bytes().all(may_be) && !last.is_empty() && !last.starts_with('.');
    (is_name && last != "group.json").then(|| last.to_owned())
}

/// Finds the running containers of a pod, `NAMESPACE/POD`, or `POD` if no other namespace has one;
/// each with its whole name. A container that only holds the pod's namespaces has no such name.
fn of_pod(pod: &str) -> Result<Vec<(String, Located)>, GroupError> {
    let (mut found, mut pods) = (Vec::new(), BTreeSet::new());
    for located in running(None) {
        let known = located.known();
        let (Some(Engine::Cri | Engine::CriO), Some(name)) = (known.engine, known.name) else {
            continue;
        };
        let parts: Vec<&str> = name.split('/').collect();
        let [namespace, own, _] = parts[..] else {
            continue;
        };
        let whole = format!("{namespace}/{own}");
        if pod == own || pod == whole {
            pods.insert(whole);
            found.push((name.clone(), located));
        }
    }
    match pods.len() {
        0 => Err(GroupError::NoPod(pod.to_owned())),
        1 => Ok(found),
        _ => Err(GroupError::SeveralPods(pod.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_the_name_that_people_know_and_is_in_the_groups() {
        assert_eq!(last_part("ml/train-0/main"), Some("main".to_owned()));
        assert_eq!(last_part("job_1.a"), Some("job_1.a".to_owned()));
        for name in ["", "..", ".hidden", "a b", "ml/", "group.json", "ü"] {
            assert_eq!(last_part(name), None, "{name}");
        }
    }
}
