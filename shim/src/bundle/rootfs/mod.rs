//! Mounts a root file system, of whatever containerd's own shim can mount: bind mounts, overlays,
//! idmapped ones, FUSE by its helper, and mounts inside another.
//!
//! Nothing here may end the shim, change its working directory, or keep it waiting: a file system
//! that hangs is waited for beside the one thread that serves a pod.

mod fuse;
mod idmap;
mod maps;
mod options;
mod overlay;
mod place;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use containerd_shim::protos::types::mount::Mount;
use nix::mount::{MsFlags, mount};
use stasis_linux::file_system::loop_device::{Access, LoopDevice};

use self::idmap::IdmappedLayers;
use self::options::Options;
use self::place::Place;
use crate::beside::beside;
use crate::child::reaper::Reaper;
use crate::io_error::IoError;

pub(crate) use self::idmap::hold_user_namespace;

const OVERLAY: &str = "overlay";

/// One mount that is to be made.
struct Wanted {
    kind: String,
    source: String,
    given: Vec<String>,
    options: Options,
    place: Place,
    /// Whose ids the files are to belong to.
    user_namespace: Option<OwnedFd>,
    /// A directory for what is mounted for a moment.
    scratch: PathBuf,
}

/// Mounts all, one after the other, at a directory that exists.
pub(super) async fn mount_all(
    mounts: &[Mount],
    root: &Path,
    scratch: &Path,
    reaper: &Arc<Reaper>,
) -> Result<(), IoError> {
    for one in mounts {
        let options = Options::parse(&one.options)?;
        let user_namespace = match &options.maps {
            Some(maps) => Some(idmap::user_namespace(maps, reaper).await?),
            None => None,
        };
        let wanted = Wanted {
            kind: one.type_.clone(),
            source: one.source.clone(),
            given: one.options.clone(),
            options,
            place: Place::new(root, &one.target),
            user_namespace,
            scratch: scratch.to_owned(),
        };
        if let Some(helper) = fuse::Helper::of(&one.type_) {
            helper.mount(&wanted, reaper).await?;
            continue;
        }
        beside(move || wanted.mount()).await?;
    }
    Ok(())
}

impl Wanted {
    fn mount(mut self) -> Result<(), IoError> {
        match self.user_namespace.take() {
            Some(namespace) if self.kind == OVERLAY => {
                let layers = IdmappedLayers::of(&mut self.options, &self.scratch, &namespace)?;
                self.mount_new()?;
                // The overlay has them now.
                layers.detach()
            }
            Some(namespace) => {
                self.mount_new()?;
                self.finish()?;
                idmap::mount_over(&self.place, &namespace)
            }
            None => {
                self.mount_new()?;
                self.finish()
            }
        }
    }

    fn mount_new(&self) -> Result<(), IoError> {
        let target = self.place.find()?;
        if self.kind == OVERLAY {
            return overlay::mount(&self.source, &self.options, target.path());
        }
        let data = self.options.data.join(",");
        if self.options.flags.contains(MsFlags::MS_REMOUNT) && data.is_empty() {
            return Ok(());
        }
        // Held until it is mounted: nobody else uses it before.
        let device = self.loop_device()?;
        let source = device
            .as_ref()
            .map_or(Path::new(&self.source), LoopDevice::path);
        mount(
            Some(source).filter(|source| !source.as_os_str().is_empty()),
            target.path(),
            Some(self.kind.as_str()).filter(|kind| !kind.is_empty()),
            self.options.flags,
            Some(data.as_str()).filter(|data| !data.is_empty()),
        )
        .map_err(self.failed())
    }

    fn loop_device(&self) -> Result<Option<LoopDevice>, IoError> {
        if !self.options.is_loop {
            return Ok(None);
        }
        let access = if self.options.flags.contains(MsFlags::MS_RDONLY) {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let device = LoopDevice::of(Path::new(&self.source), access).map_err(self.failed())?;
        Ok(Some(device))
    }

    /// What a second call does: the kernel ignores it in the one that mounts.
    fn finish(&self) -> Result<(), IoError> {
        let none = None::<&str>;
        let flags = self.options.flags;
        let target = self.place.find()?;
        if !self.options.propagation.is_empty() {
            let propagation = self.options.propagation;
            mount(none, target.path(), none, propagation, none).map_err(self.failed())?;
        }
        if flags.contains(MsFlags::MS_BIND | MsFlags::MS_RDONLY) {
            let flags = flags | MsFlags::MS_REMOUNT;
            mount(none, target.path(), none, flags, none).map_err(self.failed())?;
        }
        Ok(())
    }

    fn failed<E: Into<std::io::Error>>(&self) -> impl FnOnce(E) -> IoError {
        IoError::cannot(format!("mount {} ({})", self.source, self.kind))
    }
}

#[cfg(test)]
mod tests;
