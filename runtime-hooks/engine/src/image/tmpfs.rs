//! Whether an image has the files of each tmpfs that its mounts name: `mountpoints-NS.img` and
//! `tmpfs-dev-DEVICE.tar.gz.img` (CRIU's images/mnt.proto, criu/mount.c, criu/filesystems.c).
//!
//! If the second cannot be opened, CRIU's `tmpfs_dump` does not see it (`img_raw_fd` opens it
//! late): the dump succeeds, and no restore does.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use prost::Message;

use super::pstree::{self, PstreeError};

/// `MNTS_MAGIC` (criu/include/magic.h).
const MNTS_MAGIC: u32 = 0x5556_3928;
/// `FSTYPE__TMPFS`.
const TMPFS: u32 = 5;

/// `mnt_entry`, as far as it is needed.
#[derive(Message)]
struct MntEntry {
    #[prost(uint32, required, tag = "1")]
    fstype: u32,
    #[prost(uint32, required, tag = "3")]
    root_dev: u32,
    /// The directory of the file system that is mounted.
    #[prost(bytes = "vec", required, tag = "6")]
    root: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "7")]
    mountpoint: Vec<u8>,
    #[prost(bool, optional, tag = "12")]
    with_plugin: Option<bool>,
    #[prost(bool, optional, tag = "13")]
    ext_mount: Option<bool>,
    #[prost(bytes = "vec", optional, tag = "18")]
    ext_key: Option<Vec<u8>>,
}

impl MntEntry {
    /// Whether it is a whole tmpfs. A mount of a part of it, as runc's mounts of the container's
    /// `/dev/null` over files of /proc, says nothing about the others.
    fn is_whole(&self) -> bool {
        self.fstype == TMPFS && self.root == b"/"
    }

    /// Whether the low-level runtime or a plugin provides it: CRIU dumps no contents of its file
    /// system then (`dump_one_fs`).
    fn is_given(&self) -> bool {
        self.mountpoint == b"/"
            || self.with_plugin == Some(true)
            || self.ext_mount == Some(true)
            || self.ext_key.is_some()
    }
}

/// Verifies that an image has the contents of each tmpfs that a restore makes anew. An image
/// without mounts, as a memory dump in advance is, needs none.
///
/// # Errors
/// [`PstreeError`]: the image would not restore.
pub fn verify(image: &Path) -> Result<(), PstreeError> {
    let mounts = mounts(image)?;
    let whole = || mounts.iter().filter(|mount| mount.is_whole());
    let given = whole().filter(|mount| mount.is_given());
    let given: BTreeSet<_> = given.map(|mount| mount.root_dev).collect();
    for mount in whole().filter(|mount| !given.contains(&mount.root_dev)) {
        let path = image.join(format!("tmpfs-dev-{}.tar.gz.img", mount.root_dev));
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => {
                let mountpoint = String::from_utf8_lossy(&mount.mountpoint).into_owned();
                return Err(PstreeError::WithoutTmpfs { path, mountpoint });
            }
            Err(source) => return Err(PstreeError::Io { path, source }),
        }
    }
    Ok(())
}

/// Returns the mounts of all mount namespaces of the image.
fn mounts(image: &Path) -> Result<Vec<MntEntry>, PstreeError> {
    let failed = |source| PstreeError::Io {
        path: image.to_owned(),
        source,
    };
    let listed = fs::read_dir(image).map_err(failed)?;
    let names: io::Result<Vec<_>> = listed.map(|entry| Ok(entry?.file_name())).collect();
    let mut mounts = Vec::new();
    for name in names.map_err(failed)? {
        let Some(name) = name.to_str() else { continue };
        if name.starts_with("mountpoints-") && name.ends_with(".img") {
            mounts.extend(pstree::entries::<MntEntry>(image, name, MNTS_MAGIC)?);
        }
    }
    Ok(mounts)
}

/// A part of the fuzz target `criu_image`: the input is what follows the magic numbers.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<MntEntry>(bytes, MNTS_MAGIC);
}

#[cfg(test)]
mod tests;
