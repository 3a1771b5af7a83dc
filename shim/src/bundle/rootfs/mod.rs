//! Mounts a root file system, as containerd's snapshotters ask for it: bind mounts, overlays, and
//! file systems in a file, also with the ids of a user namespace.
//!
//! Nothing here may end the shim, change its working directory, or keep it waiting: a file system
//! that hangs is waited for beside the one thread that serves a pod.

mod idmap;
mod options;
mod overlay;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use containerd_shim::protos::types::mount::Mount;
use nix::mount::{MsFlags, mount};
use stasis_linux::file_system::loop_device::{Access, LoopDevice};

use self::idmap::IdmappedLayers;
use self::options::Options;
use crate::child::reaper::Reaper;
use crate::error::{Error, Result};
use crate::run_blocking::run_blocking;

pub(crate) use self::idmap::hold_user_namespace;

const OVERLAY: &str = "overlay";

/// One mount that is to be made.
struct Wanted {
    kind: String,
    source: String,
    options: Options,
    target: PathBuf,
    /// The user namespace whose ids are to own the files.
    user_namespace: Option<OwnedFd>,
    /// A directory for temporary mounts.
    scratch: PathBuf,
}

/// Mounts all, one over the other, at a directory that exists.
pub(super) async fn mount_all(
    mounts: &[Mount],
    target: &Path,
    scratch: &Path,
    reaper: &Arc<Reaper>,
) -> Result<()> {
    for one in mounts {
        if !one.target.is_empty() || one.type_.starts_with("fuse") {
            return Err(Error::Invalid(format!(
                "a mount of type {:?} at {:?} in the root file system: this shim mounts no file \
                 system of a program (FUSE), and none inside another; use another snapshotter, or \
                 containerd's own shim",
                one.type_, one.target
            )));
        }
        let options = Options::parse(&one.options)?;
        let user_namespace = match &options.maps {
            Some(maps) => Some(idmap::user_namespace(maps, reaper).await?),
            None => None,
        };
        let wanted = Wanted {
            kind: one.type_.clone(),
            source: one.source.clone(),
            options,
            target: target.to_owned(),
            user_namespace,
            scratch: scratch.to_owned(),
        };
        run_blocking(move || wanted.mount()).await?;
    }
    Ok(())
}

impl Wanted {
    fn mount(mut self) -> Result<()> {
        match self.user_namespace.take() {
            Some(namespace) if self.kind == OVERLAY => {
                let layers = IdmappedLayers::of(&mut self.options, &self.scratch, &namespace)?;
                self.mount_new()?;
                // The overlay holds the layers now.
                layers.detach()
            }
            Some(namespace) => {
                self.mount_new()?;
                self.finish()?;
                idmap::mount_mapped(&self.target, &self.target, &namespace)
            }
            None => {
                self.mount_new()?;
                self.finish()
            }
        }
    }

    fn mount_new(&self) -> Result<()> {
        if self.kind == OVERLAY {
            return overlay::mount(&self.source, &self.options, &self.target);
        }
        let data = self.options.data.join(",");
        if self.options.flags.contains(MsFlags::MS_REMOUNT) && data.is_empty() {
            return Ok(());
        }
        // Held until it is mounted: no other process uses it before.
        let device = self.loop_device()?;
        let source = device
            .as_ref()
            .map_or(Path::new(&self.source), LoopDevice::path);
        mount(
            Some(source).filter(|source| !source.as_os_str().is_empty()),
            &self.target,
            Some(self.kind.as_str()).filter(|kind| !kind.is_empty()),
            self.options.flags,
            Some(data.as_str()).filter(|data| !data.is_empty()),
        )
        .map_err(self.failed())
    }

    fn loop_device(&self) -> Result<Option<LoopDevice>> {
        if !self.options.is_loop {
            return Ok(None);
        }
        let access = if self.options.flags.contains(MsFlags::MS_RDONLY) {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let device = LoopDevice::of(Path::new(&self.source), access);
        device.map(Some).map_err(self.failed())
    }

    /// Makes the changes of a second call: the kernel ignores them in the one that mounts.
    fn finish(&self) -> Result<()> {
        let none = None::<&str>;
        let Options {
            flags, propagation, ..
        } = self.options;
        if !propagation.is_empty() {
            mount(none, &self.target, none, propagation, none).map_err(self.failed())?;
        }
        if flags.contains(MsFlags::MS_BIND | MsFlags::MS_RDONLY) {
            let flags = flags | MsFlags::MS_REMOUNT;
            mount(none, &self.target, none, flags, none).map_err(self.failed())?;
        }
        Ok(())
    }

    fn failed<E: Into<std::io::Error>>(&self) -> impl FnOnce(E) -> Error {
        Error::cannot(format!("mount {} ({})", self.source, self.kind))
    }
}

#[cfg(test)]
mod tests;
