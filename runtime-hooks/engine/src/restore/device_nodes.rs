//! The device nodes of a restored container.
//!
//! CRIU fills the container's `/dev`, a tmpfs, with the nodes of the image: those of the former
//! GPUs, with their former numbers. The driver needs the nodes of the new container's GPUs before
//! it restores anything to them (it returns "not supported" otherwise). The low-level runtime makes
//! nodes only for new containers.
//!
//! The container runs by then and owns its `/dev`. So no path is used here that it could redirect:
//! the directory is opened once, below the container's root and without following links, and every
//! call works on a single name in it.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use rustix::fs::{
    AtFlags, Dir, FileType, FsWord, Mode, OFlags, ResolveFlags, StatxFlags, fstat, fstatfs, major,
    makedev, minor, mkdirat, mknodat, openat, openat2, renameat, statx, unlinkat,
};
use rustix::io::Errno;
use stasis_gpu::cuda::device_node::minor_of;
use stasis_linux::ProcessRef;

use crate::container::inside;
use crate::container::spec::{Device, Spec};
use crate::restore::device_numbers::{Number, is_nvidia};

/// The kernel's number for tmpfs (linux/magic.h).
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// NVIDIA's device nodes in the new container's specification.
#[derive(Debug, Default)]
pub(crate) struct DeviceNodes {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    /// Its path below `/dev`.
    name: String,
    number: Number,
    mode: u32,
    uid: u32,
    gid: u32,
}

/// The file with a given name in a container's `/dev`.
#[derive(Debug, PartialEq, Eq)]
enum ExistingNode {
    Nothing,
    Device(FileType, u32, u32),
    /// A mount that the low-level runtime has made for this container, so it is correct.
    Mount,
    Other,
}

impl DeviceNodes {
    pub(crate) fn of(spec: &Spec) -> Self {
        let nodes = spec.devices().filter_map(|device| node(&device));
        Self {
            nodes: nodes.collect(),
        }
    }

    /// Makes the nodes in the `/dev` that a process of the container sees, and removes the nodes of
    /// other GPUs. Returns a note for each change.
    pub(crate) fn make(&self, process: &ProcessRef) -> io::Result<Vec<String>> {
        let mut notes = Vec::new();
        if self.nodes.is_empty() {
            return Ok(notes);
        }
        let Some(dev) = open_dev(process)? else {
            return Ok(notes);
        };
        for node in &self.nodes {
            if node.place(&dev)? {
                notes.push(format!("/dev/{} was made in the container", node.name));
            }
        }
        let gpus = |name: &str| minor_of(&format!("/dev/{name}")).is_some();
        if self.nodes.iter().any(|node| gpus(&node.name)) {
            for name in self.strays(&dev, gpus)? {
                unlinkat(&dev, &name, AtFlags::empty())?;
                notes.push(format!("/dev/{name} was removed from the container"));
            }
        }
        Ok(notes)
    }

    /// Nodes of GPUs that the new container does not have.
    fn strays(&self, dev: &OwnedFd, is_gpu: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut strays = Vec::new();
        for entry in Dir::read_from(dev)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let wanted = self.nodes.iter().any(|node| node.name == name);
            if is_gpu(&name)
                && !wanted
                && matches!(find(dev.as_fd(), &name)?, ExistingNode::Device(..))
            {
                strays.push(name);
            }
        }
        Ok(strays)
    }
}

fn node(device: &Device) -> Option<Node> {
    let name = device.path.strip_prefix("/dev/")?;
    // No node is deeper than nvidia-caps/nvidia-cap1.
    (is_nvidia(&device.path) && name.split('/').count() <= 2).then_some(())?;
    Some(Node {
        name: name.to_owned(),
        number: Number::of(device)?,
        mode: device.mode.unwrap_or(0o666) & 0o777,
        uid: device.uid.unwrap_or(0),
        gid: device.gid.unwrap_or(0),
    })
}

impl Node {
    /// Whether the node had to be made.
    fn place(&self, dev: &OwnedFd) -> io::Result<bool> {
        let Some((directory, name)) = self.name.split_once('/') else {
            return self.place_in(dev.as_fd(), &self.name);
        };
        match open_below(dev, directory)? {
            Some(directory) => self.place_in(directory.as_fd(), name),
            None => Ok(false),
        }
    }

    fn place_in(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
        match find(directory, name)? {
            ExistingNode::Mount => return Ok(false),
            found if found == self.device() => return Ok(false),
            _ => {}
        }
        // The node is made under another name and renamed: it is never missing, and never has
        // another owner.
        let staged = format!(".stasis-{:016x}", fastrand::u64(..));
        let Number { major, minor, .. } = self.number;
        let kind = self.kind();
        mknodat(directory, &staged, kind, Mode::RUSR, makedev(major, minor))?;
        let placed = self
            .finish(directory, &staged)
            .and_then(|()| Ok(renameat(directory, &staged, directory, name)?));
        if placed.is_err() {
            let _ = unlinkat(directory, &staged, AtFlags::empty());
        }
        placed.map(|()| true)
    }

    /// Sets owner and mode on the new node itself (mknod(2) applies the umask).
    fn finish(&self, directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = openat(directory, name, flags, Mode::empty())?;
        let found = fstat(&node)?;
        let number = (major(found.st_rdev), minor(found.st_rdev));
        if FileType::from_raw_mode(found.st_mode) != self.kind()
            || number != (self.number.major, self.number.minor)
        {
            return Err(io::Error::other("somebody in the container replaced it"));
        }
        // This link leads to the inode itself, even if its name was moved.
        let path = format!("/proc/self/fd/{}", node.as_raw_fd());
        chown(&path, Some(self.uid), Some(self.gid))?;
        fs::set_permissions(&path, Permissions::from_mode(self.mode))
    }

    fn kind(&self) -> FileType {
        match self.number.kind {
            "b" => FileType::BlockDevice,
            _ => FileType::CharacterDevice,
        }
    }

    fn device(&self) -> ExistingNode {
        ExistingNode::Device(self.kind(), self.number.major, self.number.minor)
    }
}

/// Opens the `/dev` of a process. `None` if the container has none of its own: it is missing, or
/// the machine's, or on a disk.
fn open_dev(process: &ProcessRef) -> io::Result<Option<OwnedFd>> {
    let root = inside::root_of(process)?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Found without being opened: a file system of the container's own (FUSE) need not answer.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dev = match openat2(&root, "dev", flags, Mode::empty(), resolve) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        other => other?,
    };
    let machines = fs::metadata("/dev")?.dev() == fstat(&dev)?.st_dev;
    let in_memory = fstatfs(&dev)?.f_type == TMPFS_MAGIC;
    if !in_memory || machines {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Some(openat(&dev, ".", flags, Mode::empty())?))
}

/// Opens a directory in the container's `/dev`, and creates it if it is missing. `None` for a mount
/// point.
fn open_below(dev: &OwnedFd, name: &str) -> io::Result<Option<OwnedFd>> {
    match mkdirat(dev, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(dev, name, flags, Mode::empty(), resolve) {
        Err(Errno::XDEV) => Ok(None),
        other => Ok(Some(other?)),
    }
}

fn find(directory: BorrowedFd<'_>, name: &str) -> io::Result<ExistingNode> {
    let flags = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let entry = match statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, flags) {
        Err(Errno::NOENT) => return Ok(ExistingNode::Nothing),
        other => other?,
    };
    let around = statx(directory, "", AtFlags::EMPTY_PATH, flags)?;
    if entry.stx_mnt_id != around.stx_mnt_id {
        return Ok(ExistingNode::Mount);
    }
    let kind = FileType::from_raw_mode(entry.stx_mode.into());
    Ok(match kind {
        FileType::CharacterDevice | FileType::BlockDevice => {
            ExistingNode::Device(kind, entry.stx_rdev_major, entry.stx_rdev_minor)
        }
        _ => ExistingNode::Other,
    })
}

#[cfg(test)]
mod tests;
