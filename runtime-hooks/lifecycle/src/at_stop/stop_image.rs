//! Where the image of a stopped container goes: where a new container finds it, and below the
//! directory that a new container may name.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stasis_linux::directory::Directory;

use crate::at_stop::{NoCheckpoint, io_error};
use crate::pod;
use crate::stopped::being_made;
use crate::stopped::key::{self, MODE, name_at};
use stasis_engine::container::spec::Spec;
use stasis_engine::image::allowed::refuse_exposed;

/// The most images that may begin in one moment.
const MOST_AT_ONCE: u32 = 1000;

/// A place for an image.
#[derive(Debug)]
pub(super) struct StopImage {
    /// An empty directory.
    pub(super) image: PathBuf,
    /// A process that wants the latest image of the key waits as long as this is open.
    pub(super) being_made: File,
}

impl StopImage {
    /// Makes a place below `all`, in the directory of the pod's namespace, for a key.
    pub(super) fn make(all: &Path, spec: &Spec, name: &Path) -> Result<Self, NoCheckpoint> {
        Directory::make(all, MODE).map_err(io_error(all))?;
        let all = fs::canonicalize(all).map_err(io_error(all))?;
        refuse_exposed(&all)?;
        let key = pod::directory_in(&all, spec)?.join(name);
        let directory = key::make(&all, &key).map_err(io_error(&key))?;
        let being_made = being_made::show(&directory).map_err(io_error(&key))?;
        let image = make_image(&key, SystemTime::now()).map_err(io_error(&key))?;
        Ok(Self { image, being_made })
    }
}

/// Makes a new directory, with the time as its name. Directories of the same moment get the names
/// of the next ones.
fn make_image(key: &Path, now: SystemTime) -> io::Result<PathBuf> {
    let now = key::next(key, now)?;
    let mut tries = (0..MOST_AT_ONCE).map(|later| {
        let image = key.join(name_at(now + Duration::from_millis(later.into())));
        DirBuilder::new().mode(0o700).create(&image)?;
        Ok(image)
    });
    let is_taken = |made: &io::Result<PathBuf>| {
        let error = made.as_ref().err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    };
    let made = tries.find(|made| !is_taken(made));
    made.unwrap_or(Err(io::ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::UNIX_EPOCH;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::pod::{CONTAINERD, CRI_O};

    fn place(all: &Path, annotations: &Value, key: &str) -> Result<PathBuf, NoCheckpoint> {
        let bundle = TempDir::new().unwrap();
        let text = json!({ "annotations": annotations }).to_string();
        fs::write(bundle.path().join("config.json"), text).unwrap();
        let spec = Spec::read(bundle.path()).unwrap();
        Ok(StopImage::make(all, &spec, Path::new(key))?.image)
    }

    #[test]
    fn a_pod_writes_only_below_its_namespace() {
        let above = TempDir::new().unwrap();
        let all = above.path().join("images");
        let place = |annotations: Value| place(&all, &annotations, "team/job");
        let own = place(json!({})).unwrap();
        assert_eq!(own.parent(), Some(all.join("team/job").as_path()));
        let of_pod = place(json!({CONTAINERD.namespace: "red"})).unwrap();
        assert_eq!(of_pod.parent(), Some(all.join("red/team/job").as_path()));
        for odd in ["", "..", "blue/.."] {
            let refused = place(json!({CONTAINERD.namespace: odd}));
            assert!(matches!(refused, Err(NoCheckpoint::Namespace(_))), "{odd}");
        }
        let two = json!({CONTAINERD.namespace: "red", CRI_O.namespace: "blue"});
        assert!(matches!(place(two), Err(NoCheckpoint::Namespace(_))));
    }

    #[test]
    fn nothing_is_written_where_others_can_or_through_a_link() {
        let above = TempDir::new().unwrap();
        let all = above.path().join("images");
        fs::create_dir_all(all.join("job")).unwrap();
        fs::create_dir(above.path().join("elsewhere")).unwrap();
        symlink(above.path().join("elsewhere"), all.join("link")).unwrap();
        let place = |key: &str| place(&all, &json!({}), key);
        assert!(place("link").is_err() && place("link/job").is_err());
        fs::set_permissions(all.join("job"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(place("job").is_err() && place("job/more").is_err());
        fs::set_permissions(above.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(place("other"), Err(NoCheckpoint::NotAllowed(_))));
        assert_eq!(
            fs::read_dir(above.path().join("elsewhere"))
                .unwrap()
                .count(),
            0
        );
    }

    #[test]
    fn the_names_of_one_moment_are_in_order_and_nobody_elses() {
        let key = TempDir::new().unwrap();
        let now = UNIX_EPOCH + Duration::from_millis(1_764_086_400_099);
        let ago = Duration::from_secs(3600);
        let made = [now, now, now + Duration::from_millis(20), now - ago];
        let made = made.map(|time| make_image(key.path(), time).unwrap());
        let mut sorted = made.clone();
        sorted.sort_unstable();
        assert_eq!(made, sorted);
        let name = made[1].file_name().unwrap();
        assert_eq!(name, "2025-11-25T16:00:00.100Z-stop");
    }
}
