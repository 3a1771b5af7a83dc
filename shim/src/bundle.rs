//! The directory that containerd made for a container.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use containerd_shim::mount;
use containerd_shim::protos::types::mount::Mount;
use oci_spec::runtime::{LinuxNamespaceType, Spec};

use crate::error::{Error, Result};
use crate::mount_table::unmount_below;

/// Annotations that name the group whose containers one shim serves; the first one counts
/// (containerd runtime/v2/runc/manager).
const GROUPS: [&str; 2] = [
    "io.containerd.runc.v2.group",
    "io.kubernetes.cri.sandbox-id",
];

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

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where runtimes write the init process's pid.
    pub(crate) fn init_pid_file(&self) -> PathBuf {
        self.path.join("init.pid")
    }

    /// Where runtimes log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log.json")
    }

    /// CRIU's work directory of a restore, unless the caller names another.
    pub(crate) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// Where the root file system is mounted.
    pub(crate) fn rootfs(&self) -> PathBuf {
        self.path.join("rootfs")
    }

    /// The container's specification.
    pub(crate) fn spec(&self) -> Result<Spec> {
        let path = self.path.join("config.json");
        Spec::load(&path)
            .map_err(|error| Error::Invalid(format!("cannot read {}: {error}", path.display())))
    }

    /// The group that the container belongs to; its own id if it is in none.
    pub(crate) fn group(&self, id: &str) -> Result<String> {
        let spec = self.spec()?;
        let annotations = spec.annotations().as_ref();
        let group = GROUPS
            .iter()
            .find_map(|name| annotations.and_then(|annotations| annotations.get(*name)));
        Ok(group.cloned().unwrap_or_else(|| id.to_owned()))
    }

    /// Whether the container's processes end with its init process: those of a pid namespace of
    /// their own do.
    pub(crate) fn has_own_pid_namespace(&self) -> Result<bool> {
        let spec = self.spec()?;
        let linux = spec.linux().as_ref();
        let namespaces = linux.and_then(|linux| linux.namespaces().as_ref());
        let pid =
            namespaces.and_then(|all| all.iter().find(|one| one.typ() == LinuxNamespaceType::Pid));
        Ok(pid.is_some_and(|namespace| namespace.path().is_none()))
    }

    /// Mounts the root file system; without mounts, it is somewhere else already.
    pub(crate) fn mount(&self, mounts: &[Mount]) -> Result<()> {
        let target = self.rootfs();
        if mounts.is_empty() {
            return Ok(());
        }
        let made = DirBuilder::new().mode(0o711).create(&target);
        if let Err(error) = made
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(Error::io(format!("make {}", target.display()))(error));
        }
        // With many layers the crate enters another directory, which must not become the shim's: on
        // a thread of its own it is that thread's alone (unshare(2), CLONE_FS).
        std::thread::scope(|scope| {
            let mounting = scope.spawn(|| mount_all(mounts, &target));
            mounting.join().unwrap_or_else(|_| {
                Err(Error::Mount {
                    target: target.clone(),
                    reason: "mounting it panicked".to_owned(),
                })
            })
        })
    }

    /// Unmounts the root file system, and whatever else is mounted in the directories that containerd
    /// removes.
    pub(crate) fn unmount(&self) -> Result<()> {
        unmount_below(&self.work())?;
        unmount_below(&self.path)
    }

    /// The pid in a file that a runtime wrote.
    pub(crate) fn read_pid(path: &Path) -> Result<u32> {
        let text =
            fs::read_to_string(path).map_err(Error::io(format!("read {}", path.display())))?;
        text.trim()
            .parse()
            .map_err(|_| Error::Invalid(format!("{} holds no pid", path.display())))
    }
}

fn mount_all(mounts: &[Mount], target: &Path) -> Result<()> {
    let failed = |reason: String| Error::Mount {
        target: target.to_owned(),
        reason,
    };
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    for one in mounts {
        // containerd 2 writes so what the kernel has no mount option for.
        let is_map =
            |option: &&String| option.starts_with("uidmap=") || option.starts_with("gidmap=");
        if let Some(map) = one.options.iter().find(is_map) {
            return Err(failed(format!(
                "it is to be idmapped ({map}), which this shim cannot do"
            )));
        }
        mount::mount_rootfs(
            text(&one.type_).as_deref(),
            text(&one.source).as_deref(),
            &one.options,
            target,
        )
        .map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
    fn a_container_without_a_group_is_its_own() {
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
    fn an_idmapped_root_file_system_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mapped = Mount {
            type_: "overlay".to_owned(),
            options: vec!["uidmap=0:1000:65536".to_owned()],
            ..Mount::default()
        };
        let error = Bundle::new(directory.path()).mount(&[mapped]).unwrap_err();
        assert!(error.to_string().contains("uidmap=0:1000:65536"), "{error}");
    }

    #[test]
    fn what_was_never_mounted_is_unmounted() {
        let directory = tempfile::tempdir().unwrap();
        Bundle::new(directory.path()).unmount().unwrap();
    }
}
