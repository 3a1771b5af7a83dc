//! Root file systems of pods in user namespaces: a mount whose files belong to the namespace's ids,
//! although the snapshot's belong to the host's root (containerd core/mount, `uidmap=`).

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};
use stasis_linux::file_system::mount_attributes::idmap;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::options::{Maps, Options};
use super::overlay::LAYERS;
use crate::child::reaper::Reaper;
use crate::child::{environment, spawn};
use crate::error::{Error, Result};

/// The command that has this program hold a user namespace.
const HOLD: &str = "hold-user-namespace";
/// How long the namespace may take to be made.
const MADE: Duration = Duration::from_secs(10);

/// Makes a user namespace with these maps. Only a process of one thread can get one
/// (user_namespaces(7)), so another one does, of this program.
pub(super) async fn user_namespace(maps: &Maps, reaper: &Arc<Reaper>) -> Result<OwnedFd> {
    let failed = || Error::cannot("make a user namespace");
    let (ready, ready_writer) = io::pipe().map_err(failed())?;
    let (hold_reader, hold) = io::pipe().map_err(failed())?;
    // Also if the program's file has been replaced.
    let mut command = Command::new("/proc/self/exe");
    environment::make(&mut command);
    command.arg(HOLD).stdin(hold_reader).stdout(ready_writer);
    command.stderr(Stdio::null());
    let child = spawn(reaper, command).map_err(failed())?;
    let mut ready = pipe::Receiver::from_owned_fd(ready.into()).map_err(failed())?;
    timeout(MADE, ready.read_u8())
        .await
        .map_err(io::Error::from)
        .flatten()
        .map_err(failed())?;
    let made = map_and_open(child.pid, maps);
    drop(hold);
    child.wait().await;
    made.map_err(failed())
}

fn map_and_open(pid: u32, maps: &Maps) -> io::Result<OwnedFd> {
    fs::write(format!("/proc/{pid}/uid_map"), &maps.users)?;
    fs::write(format!("/proc/{pid}/gid_map"), &maps.groups)?;
    Ok(File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// Holds a new user namespace until standard input ends: the command [`HOLD`].
pub(crate) fn hold_user_namespace() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWUSER)?;
    io::stdout().write_all(&[0])?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Mounts what is at `from` at `to`, which may be the same, with the ids of a user namespace.
pub(super) fn mount_mapped(from: &Path, to: &Path, user_namespace: &OwnedFd) -> Result<()> {
    let mount = || -> io::Result<()> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, from, flags)?;
        idmap(tree.as_fd(), user_namespace.as_fd())?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
        Ok(move_mount(&tree, "", CWD, to, flags)?)
    };
    mount().map_err(Error::cannot(format!("idmap {}", from.display())))
}

/// The layers of an overlay, each mounted with other ids: an overlay cannot be mapped itself.
#[derive(Debug)]
pub(super) struct IdmappedLayers {
    directory: PathBuf,
    mounted: Vec<PathBuf>,
}

impl IdmappedLayers {
    /// Mounts the layers that the options name below a directory, and names those instead.
    pub(super) fn of(
        options: &mut Options,
        directory: &Path,
        user_namespace: &OwnedFd,
    ) -> Result<Self> {
        let mut layers = Self {
            directory: directory.to_owned(),
            mounted: Vec::new(),
        };
        make(directory)?;
        for option in &mut options.data {
            let Some(named) = option.strip_prefix(LAYERS) else {
                continue;
            };
            let mut mapped = Vec::new();
            for layer in named.split(':') {
                let to = directory.join(layers.mounted.len().to_string());
                make(&to)?;
                mount_mapped(Path::new(layer), &to, user_namespace)?;
                mapped.push(to.display().to_string());
                layers.mounted.push(to);
            }
            *option = format!("{LAYERS}{}", mapped.join(":"));
        }
        Ok(layers)
    }

    /// Unmounts them.
    pub(super) fn detach(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        let mut unmount = || -> io::Result<()> {
            for layer in self.mounted.drain(..) {
                unmount(&layer, UnmountFlags::DETACH)?;
                fs::remove_dir(&layer)?;
            }
            fs::remove_dir(&self.directory)
        };
        unmount().map_err(Error::cannot("detach idmapped layers"))
    }
}

impl Drop for IdmappedLayers {
    fn drop(&mut self) {
        if !self.mounted.is_empty() {
            // Layers that stay mounted are unmounted with the bundle.
            let _ = self.unmount();
        }
    }
}

fn make(directory: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(directory);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::cannot(format!(
            "make {}",
            directory.display()
        ))(error)),
        _ => Ok(()),
    }
}
