//! The directory that containerd made for a container: its specification, its root file system, and
//! what is mounted in it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use containerd_shim::protos::types::mount::Mount;
use stasis_linux::pid_file;

use self::mounts::unmount_below;
use self::spec::Spec;
use crate::child::reaper::Reaper;
use crate::error::{Error, Result};

mod mounts;
pub(crate) mod rootfs;
mod spec;

/// The annotations that name the group of containers that one shim serves. The first one wins
/// (containerd runtime/v2/runc/manager).
const GROUPS: [&str; 2] = [
    "io.containerd.runc.v2.group",
    "io.kubernetes.cri.sandbox-id",
];

/// The file in the bundle with the path of an image that the runtime's options name.
const IMAGE_OF_ALL: &str = "criu-image-path-of-all";

/// Where layers are mounted with other ids, while a root file system is.
const LAYERS: &str = "layers";

/// The annotation of each container of a pod, with its role there (containerd
/// internal/cri/annotations).
const CONTAINER_TYPE: &str = "io.kubernetes.cri.container-type";

/// The prefix of the annotations that `stasis-runtime` reads.
const OURS: &str = "io.stasis.";

/// The program through which a container is created, started, killed and deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// runc or crun.
    LowLevel,
    /// `stasis-runtime`, for a container with annotations for it, or with a record below
    /// `/run/stasis`; it becomes runc or crun.
    Stasis,
}

/// A container's bundle.
#[derive(Debug, Clone)]
pub(crate) struct Bundle {
    path: PathBuf,
}

impl Bundle {
    /// The bundle at an absolute path.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The bundle's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file in which runtimes write the init process's pid.
    pub(crate) fn init_pid_file(&self) -> PathBuf {
        self.path.join("init.pid")
    }

    /// The file in which runtimes log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log.json")
    }

    /// CRIU's work directory of a restore, unless the caller names another.
    pub(crate) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// The mount point of the root file system.
    pub(crate) fn rootfs(&self) -> PathBuf {
        self.path.join("rootfs")
    }

    fn spec(&self) -> Result<Spec> {
        Spec::read(&self.path.join("config.json"))
    }

    /// The group that the container belongs to, else the container's own id.
    pub(crate) fn group(&self, id: &str) -> Result<String> {
        let spec = self.spec()?;
        let group = GROUPS.iter().find_map(|name| spec.annotation(name));
        Ok(group.unwrap_or(id).to_owned())
    }

    /// Keeps the image path in the options of all containers of a runtime, if this is a container
    /// of a pod. From the options alone Create could not tell it from a path for this container.
    pub(crate) fn keep_image_of_all(&self, image: &str) -> Result<()> {
        if image.is_empty() || self.spec()?.annotation(CONTAINER_TYPE).is_none() {
            return Ok(());
        }
        let file = self.path.join(IMAGE_OF_ALL);
        let written = std::fs::write(&file, image);
        written.map_err(Error::cannot(format!("write {}", file.display())))
    }

    /// The path that [`Bundle::keep_image_of_all`] has kept.
    ///
    /// # Errors
    ///
    /// None has been kept, or it cannot be read.
    pub(crate) fn image_of_all(&self) -> io::Result<String> {
        std::fs::read_to_string(self.path.join(IMAGE_OF_ALL))
    }

    /// Returns the program through which the container is created. The low-level runtime refuses a
    /// specification that cannot be read, in its own words.
    pub(crate) fn through(&self) -> Through {
        match self.spec() {
            Ok(spec) if spec.has_annotation_of(OURS) => Through::Stasis,
            Ok(_) | Err(_) => Through::LowLevel,
        }
    }

    /// Whether the container has a pid namespace of its own: then the kernel ends all its processes
    /// with its init process (pid_namespaces(7)).
    pub(crate) fn has_own_pid_namespace(&self) -> Result<bool> {
        Ok(self.spec()?.has_own_pid_namespace())
    }

    /// The cgroup that the specification names, if it names one.
    pub(crate) fn cgroups_path(&self) -> Result<Option<PathBuf>> {
        Ok(self.spec()?.cgroups_path())
    }

    /// Mounts the root file system. Without mounts the caller has prepared it already.
    pub(crate) async fn mount(&self, mounts: &[Mount], reaper: &Arc<Reaper>) -> Result<()> {
        let target = self.rootfs();
        if mounts.is_empty() {
            return Ok(());
        }
        let made = DirBuilder::new().mode(0o711).create(&target);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(Error::cannot(format!("make {}", target.display()))(error));
        }
        let scratch = self.path.join(LAYERS);
        let mounted = rootfs::mount_all(mounts, &target, &scratch, reaper).await;
        mounted.map_err(|error| {
            let target = target.display();
            Error::Other(format!(
                "cannot mount the root file system at {target}: {error}"
            ))
        })
    }

    /// Unmounts the root file system, and everything else that is mounted in the directories that
    /// containerd removes.
    pub(crate) fn unmount(&self) -> Result<()> {
        unmount_below(&self.work())?;
        unmount_below(&self.path)
    }

    /// The pid in a file that a runtime wrote.
    pub(crate) fn read_pid(path: &Path) -> Result<u32> {
        pid_file::read(path).map_err(Error::cannot(format!("read {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn bundle(config: &str) -> (tempfile::TempDir, Bundle) {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("config.json"), config).unwrap();
        let bundle = Bundle::new(directory.path());
        (directory, bundle)
    }

    #[test]
    fn the_runc_group_comes_before_the_pod() {
        let (_directory, bundle) = bundle(
            r#"{"ociVersion":"1.0.2","annotations":
            {"io.kubernetes.cri.sandbox-id":"pod","io.containerd.runc.v2.group":"group"}}"#,
        );
        assert_eq!(bundle.group("c1").unwrap(), "group");
    }

    #[test]
    fn a_container_without_a_group_annotation_is_its_own_group() {
        let (_directory, bundle) = bundle(r#"{"ociVersion":"1.0.2"}"#);
        assert_eq!(bundle.group("c1").unwrap(), "c1");
        assert!(!bundle.has_own_pid_namespace().unwrap());
    }

    #[test]
    fn a_joined_pid_namespace_is_not_its_own() {
        let namespace = |more: &str| {
            format!(r#"{{"ociVersion":"1.0.2","linux":{{"namespaces":[{{"type":"pid"{more}}}]}}}}"#)
        };
        let (_directory, own) = bundle(&namespace(""));
        assert!(own.has_own_pid_namespace().unwrap());
        let (_directory, joined) = bundle(&namespace(r#","path":"/proc/1/ns/pid""#));
        assert!(!joined.has_own_pid_namespace().unwrap());
    }

    #[test]
    fn the_image_of_all_containers_is_kept_in_a_pod() {
        let (_directory, other) = bundle(r#"{"ociVersion":"1.0.2"}"#);
        other.keep_image_of_all("/images/x").unwrap();
        assert!(other.image_of_all().is_err());
        let (_directory, pod) = bundle(
            r#"{"ociVersion":"1.0.2","annotations":
            {"io.kubernetes.cri.container-type":"sandbox"}}"#,
        );
        pod.keep_image_of_all("").unwrap();
        assert!(pod.image_of_all().is_err());
        pod.keep_image_of_all("/images/x").unwrap();
        assert_eq!(pod.image_of_all().unwrap(), "/images/x");
    }

    #[test]
    fn what_a_low_level_runtime_ignores_is_not_looked_at() {
        let (_directory, bundle) = bundle(
            r#"{"ociVersion":"9.0","process":{"capabilities":{"bounding":["CAP_OF_TOMORROW"]}},
            "annotations":null,"linux":{"cgroupsPath":"/a/b","namespaces":[
            {"type":"tomorrow"},{"type":"pid","path":""}],
            "seccomp":{"defaultAction":"SCMP_ACT_OF_TOMORROW"}}}"#,
        );
        assert_eq!(bundle.group("c1").unwrap(), "c1");
        assert!(bundle.has_own_pid_namespace().unwrap());
        assert_eq!(bundle.cgroups_path().unwrap(), Some("/a/b".into()));
    }

    #[test]
    fn a_bundle_without_mounts_can_be_unmounted() {
        let directory = tempfile::tempdir().unwrap();
        Bundle::new(directory.path()).unmount().unwrap();
    }
}
