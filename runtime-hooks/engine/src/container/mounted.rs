//! The directories of the host that a container writes to.
//!
//! CRIU treats a bind mount as external and dumps none of its files, but it dumps mounts that runc
//! makes itself. Most of these directories outlast the container, on a disk. An engine unmounts
//! others when the container or its pod ends, so an image has to carry their files:
//!
//! * `/dev/shm`, of which podman and Docker mount one for each container,
//! * volumes of podman and Docker that are a tmpfs,
//! * an `emptyDir` of Kubernetes in memory.
//!
//! Not carried: a `/dev/shm` that other containers or the host have as well, by a shared IPC
//! namespace. Queues (`/dev/mqueue`) cannot be dumped: CRIU refuses a container with one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, statvfs};
use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_linux::mountinfo::{Mount, mounts};

use crate::container::Container;
use crate::container::spec::{Bind, Spec};

const SHARED_MEMORY: &str = "/dev/shm";
/// The file systems of disks, and in memory.
const WITHOUT_SERVER: [&[u8]; 8] = [
    b"tmpfs",
    b"overlay",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"zfs",
    b"f2fs",
    b"bcachefs",
];
/// More than any container has.
const MOST: usize = 256;

/// A directory of the host that a container writes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where it is in the container.
    pub(crate) destination: PathBuf,
    /// Where it is on the host.
    pub(crate) source: PathBuf,
    /// Whether its files outlast the container.
    pub(crate) files: Files,
}

/// Whether the files of a directory outlast the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Files {
    /// They stay where they are.
    Stay,
    /// They are gone, unless an image carries them.
    End,
}

impl Mounted {
    /// Returns whether the directory is empty.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        Ok(fs::read_dir(&self.source)?.next().is_none())
    }

    fn has_files(&self) -> bool {
        self.is_empty().is_ok_and(|is_empty| !is_empty)
    }

    fn of(spec: &Spec, bind: &Bind<'_>, mounts: &[Mount]) -> Option<Self> {
        let source = PathBuf::from(bind.source);
        if bind.is_read_only {
            return None;
        }
        let mount = answering(mounts, &source)?;
        if !is_directory(&source) {
            return None;
        }
        let destination: PathBuf = Path::new("/").join(bind.destination).components().collect();
        let ends = mount.kind == b"tmpfs"
            && match destination == Path::new(SHARED_MEMORY) && spec.has_own_namespace("ipc") {
                true => device(&source) != device(Path::new(SHARED_MEMORY)),
                false => is_volume(&source),
            };
        Some(Self {
            destination,
            source,
            files: if ends { Files::End } else { Files::Stay },
        })
    }
}

/// Returns all directories of a container.
pub fn all(spec: &Spec) -> Vec<Mounted> {
    let mounts = mounts().unwrap_or_default();
    let binds = spec.binds().take(MOST);
    let found = binds.filter_map(|bind| Mounted::of(spec, &bind, &mounts));
    // The last one at a place hides the others.
    let found = found.map(|mounted| (mounted.destination.clone(), mounted));
    found.collect::<BTreeMap<_, _>>().into_values().collect()
}

/// Returns the directories whose files `image` has to carry or list. For an image in the bundle,
/// podman puts files that end with a container beside that image itself.
pub(crate) fn of_image(container: &Container, image: &Path) -> Vec<Mounted> {
    match container.bundle() {
        Some(bundle) if !image.starts_with(bundle) => {
            container.spec().map_or_else(Vec::new, |spec| all(&spec))
        }
        _ => Vec::new(),
    }
}

/// Returns whether an image has to list its files: a new container may begin with it, or it carries
/// some that end with its container.
pub(crate) fn are_told_of(settings: &Settings, container: &Container, image: &Path) -> bool {
    may_begin_with(&settings.restore.at_create, image)
        || of_image(container, image)
            .iter()
            .any(|mounted| mounted.files == Files::End && mounted.has_files())
}

/// Whether new containers may begin with an image. Stops name it without the links that may lead to
/// the directory of the settings.
fn may_begin_with(at_create: &Path, image: &Path) -> bool {
    let is_below = |directory: &Path| image.starts_with(directory);
    !at_create.as_os_str().is_empty()
        && (is_below(at_create) || fs::canonicalize(at_create).is_ok_and(|all| is_below(&all)))
}

/// The most bytes that an image's copies of files of a container can take.
pub(crate) fn used_bytes(container: &Container) -> u64 {
    let all = container.spec().as_ref().map_or_else(Vec::new, all);
    let ending = all.iter().filter(|mounted| mounted.files == Files::End);
    let used = ending.filter_map(|mounted| statvfs(&mounted.source).ok());
    let bytes = used.map(|it| {
        let blocks = it.f_blocks.saturating_sub(it.f_bfree);
        blocks.saturating_mul(it.f_frsize)
    });
    bytes.fold(0, u64::saturating_add)
}

/// Returns the mount that a path is on, if its file system has no server: a server may never
/// answer, so nothing there is looked at.
fn answering<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    // Of two on one directory the later one hides the other, and is the one that is found.
    let mount = above.max_by_key(|mount| mount.point.components().count());
    mount.filter(|mount| WITHOUT_SERVER.contains(&mount.kind.as_slice()))
}

/// Follows no link, which may lead to another file system.
fn is_directory(path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok()
}

/// Whether it is the root of a volume of podman's or Docker's local driver (`volumes/NAME/_data`),
/// or of an `emptyDir` of the kubelet's (`volumes/kubernetes.io~empty-dir/NAME`): they mount a
/// tmpfs there for the users of the volume.
fn is_volume(source: &Path) -> bool {
    has_name_of_volume(source) && source.parent().and_then(device) != device(source)
}

fn has_name_of_volume(source: &Path) -> bool {
    let mut parts = source.components().rev().map(|part| part.as_os_str());
    let [name, kind, volumes] = [(); 3].map(|()| parts.next().unwrap_or_default());
    volumes == "volumes" && (name == "_data" || kind == "kubernetes.io~empty-dir")
}

fn device(path: &Path) -> Option<u64> {
    fs::metadata(path).map(|it| it.dev()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_server_is_not_looked_at() {
        let mounts = stasis_linux::mountinfo::parse(
            b"1 1 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:4 / /far rw - nfs4 far:/ rw\n\
              3 2 0:5 / /far/near rw - tmpfs tmpfs rw\n4 1 0:6 / /fuse rw - fuse.sshfs s rw\n",
        );
        for (path, expected) in [
            ("/data", true),
            ("/far/data", false),
            ("/far/near/data", true),
            ("/fuse", false),
            ("relative", false),
        ] {
            let found = answering(&mounts, Path::new(path));
            assert_eq!(found.is_some(), expected, "{path}");
        }
    }

    #[test]
    fn links_to_the_directory_of_all_images_are_followed() {
        let at = tempfile::tempdir().unwrap();
        let at = at.path().canonicalize().unwrap();
        let (images, link) = (at.join("images"), at.join("link"));
        fs::create_dir(&images).unwrap();
        std::os::unix::fs::symlink(&images, &link).unwrap();
        for at_create in [&images, &link] {
            assert!(may_begin_with(at_create, &images.join("job/1-stop")));
            assert!(!may_begin_with(at_create, &at.join("images-too")));
        }
        assert!(!may_begin_with(Path::new(""), &images));
    }

    #[test]
    fn volumes_are_known_by_where_engines_have_them() {
        let kubelet = "/var/lib/kubelet/pods/4f5c/volumes";
        for (source, is_volume) in [
            ("/var/lib/containers/storage/volumes/scratch/_data", true),
            ("/var/lib/docker/volumes/scratch/_data", true),
            (&format!("{kubelet}/kubernetes.io~empty-dir/dshm"), true),
            (&format!("{kubelet}/kubernetes.io~projected/token"), false),
            (
                &format!("{kubelet}/kubernetes.io~empty-dir/dshm/below"),
                false,
            ),
            ("/mnt/ramdisk", false),
            ("/_data", false),
        ] {
            assert_eq!(has_name_of_volume(Path::new(source)), is_volume, "{source}");
        }
    }
}
