//! Files that processes have open or mapped: `files.img` has the files of all (CRIU's
//! images/fdinfo.proto and regfile.proto).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use prost::Message;

use super::{ContentsError, Files};

/// `FILES_MAGIC` (criu/include/magic.h).
const FILES_MAGIC: u32 = 0x5630_3138;

/// `file_entry`, as far as it is needed.
#[derive(Message)]
struct FileEntry {
    #[prost(uint32, required, tag = "2")]
    id: u32,
    #[prost(message, optional, tag = "3")]
    regular: Option<RegularFile>,
}

/// `reg_file_entry`, as far as it is needed.
#[derive(Message)]
struct RegularFile {
    #[prost(bytes = "vec", required, tag = "6")]
    name: Vec<u8>,
    #[prost(sint32, optional, tag = "7")]
    mount: Option<i32>,
    #[prost(uint64, optional, tag = "8")]
    bytes: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    mode: Option<u32>,
}

/// A file that CRIU opens by its name.
#[derive(Debug)]
pub(super) struct Regular {
    pub(super) id: u32,
    pub(super) path: PathBuf,
    /// The number of its mount.
    pub(super) mount: Option<u32>,
    /// The size and mode that CRIU compares.
    pub(super) bytes: Option<u64>,
    pub(super) mode: Option<u32>,
}

/// Hands on each of the files of all processes that has a name, mapped ones too.
pub(super) fn each_regular(
    files: &Files,
    mut hand_on: impl FnMut(Regular),
) -> Result<(), ContentsError> {
    files.each("files.img", FILES_MAGIC, |entry: FileEntry| {
        let Some(regular) = entry.regular else {
            return;
        };
        hand_on(Regular {
            id: entry.id,
            path: PathBuf::from(OsString::from_vec(regular.name)),
            mount: regular.mount.and_then(|number| number.try_into().ok()),
            bytes: regular.bytes,
            mode: regular.mode,
        });
    })
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<FileEntry>(bytes, FILES_MAGIC);
}
