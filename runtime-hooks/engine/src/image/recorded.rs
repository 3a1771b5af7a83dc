//! Images that the records of operations name: they stay, also if no process uses them now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stasis_gpu::gpu_path::detached;

use crate::operation::awaited_start::AwaitedStart;
use crate::operation::undo::{Begun, Undo};
use crate::operation::{directories, id_of};

/// A directory that is needed, and its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The directory, without links: that of an image, one in it, or one of contents apart from it.
    pub directory: PathBuf,
    /// The user, for people.
    pub user: String,
}

/// Returns all directories that records below a state directory name: of checkpoints that are not
/// over, of containers that wait for their start, and of GPU contents that are away from their
/// processes, of which an image that is not whole may have the only copy.
///
/// # Errors
/// An I/O error: it is not known who needs which.
pub fn needed(state_dir: &Path) -> io::Result<Vec<Needed>> {
    let checkpoints = Undo::all(state_dir)?.into_iter().filter_map(of_checkpoint);
    let mut needed: Vec<_> = checkpoints.collect();
    for (id, awaited) in AwaitedStart::all(state_dir)? {
        let user = format!("container {id} was created from it, and is not started yet");
        needed.push(Needed::of(awaited.image, user));
    }
    for operation in directories(state_dir)? {
        let user = format!("GPU contents of container {} are in it", id_of(&operation));
        for directory in detached::kept_in(&operation)? {
            needed.push(Needed::of(directory, user.clone()));
        }
    }
    Ok(needed)
}

/// Returns who needs something below a directory, which is canonical.
#[must_use]
pub fn user_of<'n>(needed: &'n [Needed], directory: &Path) -> Option<&'n str> {
    let mut needed = needed.iter();
    let found = needed.find(|needed| needed.directory.starts_with(directory));
    found.map(|needed| needed.user.as_str())
}

impl Needed {
    fn of(directory: PathBuf, user: String) -> Self {
        let directory = fs::canonicalize(&directory).unwrap_or(directory);
        Self { directory, user }
    }
}

/// A killed checkpoint is finished or undone with what it has written.
fn of_checkpoint(undo: Undo) -> Option<Needed> {
    match undo.begun {
        Begun::Checkpoint {
            image: Some(image), ..
        } => {
            let user = format!("a checkpoint of container {} is not over", undo.id);
            Some(Needed::of(image, user))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use stasis_config::{Flavor, LowLevel, Settings};
    use stasis_host::cancel::Cancel;
    use stasis_linux::cgroup::FreezerState;

    use super::*;
    use crate::context::Context;
    use crate::operation::Operation;
    use crate::operation::undo::path_in;

    #[test]
    fn images_of_all_records_are_needed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().canonicalize().unwrap().join(name);
        let state_dir = &path("state");
        let root = Path::new("/run/runc");
        let begin = |id| Operation::begin(state_dir, root, id).unwrap();
        let context = Context {
            settings: Settings::default(),
            low_level: LowLevel {
                path: "/usr/sbin/runc".into(),
                flavor: Flavor::Runc,
            },
            root: root.to_owned(),
            cancel: Cancel::not_needed(),
            began: SystemTime::now(),
        };
        let begun = Begun::Checkpoint {
            found: FreezerState::Thawed,
            image: Some(path("dumped")),
            shared: None,
        };
        let undo = serde_json::to_vec(&Undo::new(&context, "c1", begun)).unwrap();
        fs::write(path_in(begin("c1").directory()), undo).unwrap();
        let awaited = serde_json::json!({"image": path("awaited"), "bundle": "/bundle"});
        let away = serde_json::json!({
            "places": [path("away/.stasis-new"), path("away")],
            "image_id": "00000000000000000000000000000007",
            "store": path("apart/7"),
            "in_files": [],
        });
        let away = ("gpu-contents-away.json", away);
        let operation = begin("c2");
        for (name, text) in [("start.json", awaited), away] {
            fs::write(operation.directory().join(name), text.to_string()).unwrap();
        }
        let needed = needed(state_dir).unwrap();
        for name in ["dumped", "awaited", "away", "away/.stasis-new", "apart/7"] {
            assert!(
                user_of(&needed, &path(name)).is_some(),
                "{name}: {needed:?}"
            );
        }
        assert_eq!(user_of(&needed, &path("other")), None);
    }
}
