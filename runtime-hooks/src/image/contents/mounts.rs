//! The mounts of an image: `mountpoints-NS.img` (CRIU's images/mnt.proto).

use prost::Message;
use serde::Serialize;

use super::files::text;
use super::{ContentsError, Files};

/// `MNTS_MAGIC` (criu/include/magic.h).
const MNTS_MAGIC: u32 = 0x5556_3928;
/// The kernel allows so many in a namespace by default (fs.mount-max).
const MAX_MOUNTS: usize = 100_000;
/// The kernel's PATH_MAX.
const MAX_PATH: usize = 4096;
/// What all of them may take.
const MAX_TEXT: usize = 64 << 20;

/// A mount of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Mount {
    pub(crate) mountpoint: String,
    /// The type of the file system.
    pub(crate) file_system: String,
    /// Where it is from, as /proc/PID/mountinfo has it.
    pub(crate) source: String,
    /// The directory of the file system that is mounted.
    pub(crate) root: String,
    /// Whether it is the low-level runtime's to provide at a restore.
    pub(crate) external: bool,
}

/// `mnt_entry`, as far as it is needed.
#[derive(Message)]
struct MntEntry {
    #[prost(int32, required, tag = "1")]
    file_system: i32,
    #[prost(uint32, required, tag = "2")]
    number: u32,
    #[prost(bytes = "vec", required, tag = "6")]
    root: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "7")]
    mountpoint: Vec<u8>,
    #[prost(bytes = "vec", required, tag = "8")]
    source: Vec<u8>,
    #[prost(bool, optional, tag = "13")]
    external: Option<bool>,
    #[prost(bytes = "vec", optional, tag = "14")]
    file_system_name: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "18")]
    external_key: Option<Vec<u8>>,
}

pub(super) fn read(files: &Files) -> Result<Vec<Mount>, ContentsError> {
    let mounts = numbered(files)?.into_iter();
    Ok(mounts.map(|(_, mount)| mount).collect())
}

/// The mounts, each with the number by which files name it.
pub(super) fn numbered(files: &Files) -> Result<Vec<(u32, Mount)>, ContentsError> {
    let mut mounts = Vec::new();
    let (mut left, mut fits) = (MAX_TEXT, true);
    let is_listed = |name: &&String| name.starts_with("mountpoints-") && name.ends_with(".img");
    for name in files.names().keys().filter(is_listed) {
        files.each(name, MNTS_MAGIC, |entry: MntEntry| {
            let mount = Mount::of(&entry);
            let rest = left.checked_sub(mount.bytes());
            fits &= rest.is_some() && mounts.len() < MAX_MOUNTS;
            if fits {
                left = rest.unwrap_or_default();
                mounts.push((entry.number, mount));
            }
        })?;
    }
    if !fits {
        return Err(files.too_much("mounts", MAX_MOUNTS));
    }
    Ok(mounts)
}

impl Mount {
    fn of(entry: &MntEntry) -> Self {
        let named = entry.file_system_name.as_ref();
        let named = named.map(|name| text(name, MAX_PATH));
        Self {
            mountpoint: text(&entry.mountpoint, MAX_PATH),
            file_system: named.unwrap_or_else(|| file_system(entry.file_system).to_owned()),
            source: text(&entry.source, MAX_PATH),
            root: text(&entry.root, MAX_PATH),
            external: entry.external == Some(true) || entry.external_key.is_some(),
        }
    }

    fn bytes(&self) -> usize {
        let texts = [
            &self.mountpoint,
            &self.file_system,
            &self.source,
            &self.root,
        ];
        texts.map(|text| text.len()).iter().sum()
    }
}

/// `fstype`.
fn file_system(number: i32) -> &'static str {
    match number {
        1 => "proc",
        2 => "sysfs",
        3 => "devtmpfs",
        4 => "binfmt_misc",
        5 => "tmpfs",
        6 => "devpts",
        8 => "pstore",
        9 => "securityfs",
        10 => "fusectl",
        11 => "debugfs",
        12 => "cgroup",
        14 => "mqueue",
        15 => "fuse",
        17 => "overlay",
        18 => "autofs",
        19 => "tracefs",
        23 => "cgroup2",
        _ => "unknown",
    }
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<MntEntry>(bytes, MNTS_MAGIC);
}
