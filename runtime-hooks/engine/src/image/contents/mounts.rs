//! The mounts of an image: `mountpoints-NS.img` (CRIU's images/mnt.proto).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use prost::Message;

use super::{ContentsError, Files};

/// `MNTS_MAGIC` (criu/include/magic.h).
const MNTS_MAGIC: u32 = 0x5556_3928;

/// A mount of the container.
#[derive(Debug)]
pub(super) struct Mount {
    /// The number by which files name it.
    pub(super) number: u32,
    pub(super) mountpoint: PathBuf,
    /// Whether the low-level runtime provides it at a restore.
    pub(super) external: bool,
}

/// `mnt_entry`, as far as it is needed.
#[derive(Message)]
struct MntEntry {
    #[prost(uint32, required, tag = "2")]
    number: u32,
    #[prost(bytes = "vec", required, tag = "7")]
    mountpoint: Vec<u8>,
    #[prost(bool, optional, tag = "13")]
    external: Option<bool>,
    #[prost(bytes = "vec", optional, tag = "18")]
    external_key: Option<Vec<u8>>,
}

/// Hands on each of the mounts.
pub(super) fn each(files: &Files, mut hand_on: impl FnMut(Mount)) -> Result<(), ContentsError> {
    let is_listed = |name: &&String| name.starts_with("mountpoints-") && name.ends_with(".img");
    for name in files.names().filter(is_listed) {
        files.each(name, MNTS_MAGIC, |entry: MntEntry| {
            hand_on(Mount {
                number: entry.number,
                external: entry.external == Some(true) || entry.external_key.is_some(),
                mountpoint: PathBuf::from(OsString::from_vec(entry.mountpoint)),
            });
        })?;
    }
    Ok(())
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<MntEntry>(bytes, MNTS_MAGIC);
}
