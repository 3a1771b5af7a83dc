//! The tmpfs that an engine has mounted for a container's `/dev/shm`.
//!
//! podman and Docker mount one for each container, and bind it into it. CRIU takes a bind mount for
//! somebody else's and dumps nothing of it, and the engine unmounts it when the container ends. So
//! an image has to carry the files. What runc mounts itself is dumped by CRIU.
//!
//! Left as it is: what other containers or the host have as well, by a shared IPC namespace, and a
//! directory on a disk. Queues (`/dev/mqueue`) cannot be dumped: CRIU refuses a container with one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, statvfs};
use stasis_memory_store::is_in_memory;

use crate::container::Container;
use crate::container::spec::Spec;

const POINT: &str = "/dev/shm";

/// The directory of the host that a container has as its own `/dev/shm`, if an engine has made it.
pub(crate) fn directory(spec: &Spec) -> Option<PathBuf> {
    let binds = spec.binds().filter(|bind| bind.destination == POINT);
    let directory = PathBuf::from(binds.last()?.source);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_tmpfs = || open(&directory, flags, Mode::empty()).is_ok_and(is_in_memory);
    let device = |path: &Path| fs::metadata(path).map(|it| it.dev()).ok();
    let is_own = spec.has_own_namespace("ipc")
        && directory.is_absolute()
        && is_tmpfs()
        && device(&directory) != device(Path::new(POINT));
    is_own.then_some(directory)
}

/// The directory of a container whose files go into `image`. podman puts them beside an image of
/// its own, which is in the bundle.
pub(crate) fn carried(container: &Container, image: &Path) -> Option<PathBuf> {
    match container.bundle() {
        Some(bundle) if !image.starts_with(bundle) => directory(&container.spec()?),
        _ => None,
    }
}

/// Whether nothing is in it.
pub(crate) fn is_empty(directory: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(directory)?.next().is_none())
}

/// What the files of a container take at most, in bytes.
pub(crate) fn used_bytes(container: &Container) -> u64 {
    let directory = container.spec().as_ref().and_then(directory);
    let system = directory.and_then(|directory| statvfs(&directory).ok());
    system.map_or(0, |it| {
        it.f_blocks
            .saturating_sub(it.f_bfree)
            .saturating_mul(it.f_frsize)
    })
}
