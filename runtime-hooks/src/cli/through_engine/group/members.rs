//! The containers of a group, in the order in which their operations are begun: two groups that
//! overlap cannot wait for each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::GroupWanted;
use crate::cli::command_error::{CommandError, GroupError};
use crate::cli::locate::engine::{Engine, Known};
use crate::cli::locate::{Located, locate, running};
use crate::operation::group::GroupMember;

/// A container.
#[derive(Debug)]
pub(super) struct Member {
    /// What the command line names it.
    pub(super) name: String,
    pub(super) located: Located,
    pub(super) known: Known,
    /// Where its image shall be.
    pub(super) image: PathBuf,
    directory: String,
}

impl Member {
    /// As the group's file has it.
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

/// Finds them, by the ids of all.
///
/// # Errors
/// One is not there, or is named twice.
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

/// The name in its pod, if a directory may be called so.
fn last_part(name: &str) -> Option<String> {
    let last = name.rsplit('/').next()?;
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let is_name = last.bytes().all(may_be) && !last.is_empty() && !last.starts_with('.');
    (is_name && last != "group.json").then(|| last.to_owned())
}

/// The running containers of a pod, `NAMESPACE/POD`, or `POD` if no other namespace has one; each
/// with its whole name. What only holds the pod's namespaces has none.
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
