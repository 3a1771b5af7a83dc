//! The requirements of an image on its container at a restore: the mounts that its runtime
//! provides, and the files there and in the root file system that processes have open or mapped.
//! Files that CRIU brings along are left out: file systems in memory, files without a name.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use prost::Message;

use super::mounts;
use super::open_files::each_regular;
use super::{ContentsError, Files};

/// `REMAP_FPATH_MAGIC` (criu/include/magic.h): files that were removed and are in the image.
const REMAP_MAGIC: u32 = 0x5913_3954;
/// Device nodes are made at a restore.
const DEVICES: &str = "/dev";
/// S_IFMT, S_IFREG and S_IFDIR.
const KIND: u32 = 0o170_000;
const KINDS: [u32; 2] = [0o100_000, 0o040_000];

/// The mounts and files that have to exist.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The mount points of the runtime.
    pub mounts: BTreeSet<PathBuf>,
    /// The files that CRIU will open.
    pub files: Vec<ExpectedFile>,
}

/// A file that CRIU will open.
#[derive(Debug, PartialEq, Eq)]
pub struct ExpectedFile {
    /// The mount point of its file system.
    pub mountpoint: PathBuf,
    /// Its path below that.
    pub within: PathBuf,
    /// Its size, if it has to be the same.
    pub bytes: Option<u64>,
}

impl ExpectedFile {
    /// Its path in the container.
    pub fn path(&self) -> PathBuf {
        self.mountpoint.join(&self.within)
    }
}

/// `remap_file_path_entry`, as far as it is needed.
#[derive(Message)]
struct RemapEntry {
    /// The file's id.
    #[prost(uint32, required, tag = "1")]
    id: u32,
}

impl Expected {
    /// Reads CRIU's files.
    pub fn read(files: &Files) -> Result<Self, ContentsError> {
        let mut brought = BTreeSet::new();
        files.each("remap-fpath.img", REMAP_MAGIC, |entry: RemapEntry| {
            brought.insert(entry.id);
        })?;
        let mut expected = Self::default();
        let mut provided = HashMap::new();
        mounts::each(files, |mount| {
            let is_root = mount.mountpoint == Path::new("/");
            if mount.external && !is_root {
                expected.mounts.insert(mount.mountpoint.clone());
            }
            if mount.external || is_root {
                provided.insert(mount.number, mount.mountpoint);
            }
        })?;
        each_regular(files, |file| {
            let mountpoint = file.mount.and_then(|number| provided.get(&number));
            let is_kind = file.mode.is_none_or(|mode| KINDS.contains(&(mode & KIND)));
            let (Some(mountpoint), true) = (mountpoint, is_kind) else {
                return;
            };
            let is_device = file.path.starts_with(DEVICES);
            let within = file.path.strip_prefix(mountpoint);
            if let Ok(within) = within
                && !is_device
                && !brought.contains(&file.id)
            {
                expected.files.push(ExpectedFile {
                    mountpoint: mountpoint.clone(),
                    within: within.to_owned(),
                    bytes: file.bytes,
                });
            }
        })?;
        Ok(expected)
    }
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<RemapEntry>(bytes, REMAP_MAGIC);
}
