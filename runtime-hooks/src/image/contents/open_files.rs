//! What processes have open: `files.img` has the files of all, `fdinfo-ID.img` the descriptors of
//! those that share them (CRIU's images/fdinfo.proto).

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use prost::Message;
use serde::Serialize;

use super::files::text;
use super::sockets::{InetSocket, Socket, UnixSocket};
use super::{ContentsError, Files};

/// Those of the files (criu/include/magic.h).
const FILES_MAGIC: u32 = 0x5630_3138;
const FDINFO_MAGIC: u32 = 0x5621_3732;
/// Of all processes together: far more than one of them may open by default (ulimit -n).
const MAX_DESCRIPTORS: usize = 1 << 18;
/// What all their names may take, so that a long name of many descriptors does no harm.
const MAX_NAMES: usize = 64 << 20;
/// The kernel's PATH_MAX.
const MAX_PATH: usize = 4096;

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OpenFile {
    pub(crate) fd: u32,
    #[serde(flatten)]
    pub(crate) file: Described,
}

/// What a descriptor leads to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Described {
    pub(crate) kind: &'static str,
    /// Its path in the container, if it has one.
    pub(crate) path: Option<String>,
    /// `None`: it is no socket.
    pub(crate) socket: Option<Socket>,
}

/// `file_entry`, as far as it is needed.
#[derive(Message)]
struct FileEntry {
    #[prost(int32, required, tag = "1")]
    kind: i32,
    #[prost(uint32, required, tag = "2")]
    id: u32,
    #[prost(message, optional, tag = "3")]
    regular: Option<RegularFile>,
    #[prost(message, optional, tag = "4")]
    inet: Option<InetSocket>,
    #[prost(message, optional, tag = "16")]
    unix: Option<UnixSocket>,
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
    /// What CRIU compares.
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

/// `fdinfo_entry`, as far as it is needed.
#[derive(Message)]
struct FdinfoEntry {
    /// Of its file.
    #[prost(uint32, required, tag = "1")]
    id: u32,
    #[prost(int32, required, tag = "3")]
    kind: i32,
    #[prost(uint32, required, tag = "4")]
    fd: u32,
}

/// The files of all processes, and how much of them may still be shown.
#[derive(Debug)]
pub(super) struct OpenFiles {
    by_id: HashMap<u32, Described>,
    descriptors: usize,
    names: usize,
}

impl OpenFiles {
    pub(super) fn read(files: &Files) -> Result<Self, ContentsError> {
        let mut by_id = HashMap::new();
        files.each("files.img", FILES_MAGIC, |entry: FileEntry| {
            if by_id.len() < MAX_DESCRIPTORS {
                by_id.insert(entry.id, Described::of(&entry));
            }
        })?;
        Ok(Self {
            by_id,
            descriptors: MAX_DESCRIPTORS,
            names: MAX_NAMES,
        })
    }

    /// The descriptors of the processes with this id.
    pub(super) fn of(&mut self, files: &Files, id: u32) -> Result<Vec<OpenFile>, ContentsError> {
        let (mut open, mut fits) = (Vec::new(), true);
        files.each(
            &format!("fdinfo-{id}.img"),
            FDINFO_MAGIC,
            |entry: FdinfoEntry| {
                let known = self.by_id.get(&entry.id);
                let long = known
                    .and_then(|file| file.path.as_ref())
                    .map_or(0, String::len);
                fits &= self.descriptors > 0 && self.names >= long;
                if !fits {
                    return;
                }
                self.descriptors -= 1;
                self.names -= long;
                let unknown = || Described::nameless(kind(entry.kind));
                let file = known.cloned().unwrap_or_else(unknown);
                open.push(OpenFile { fd: entry.fd, file });
            },
        )?;
        if !fits {
            return Err(files.too_much("open files", MAX_DESCRIPTORS));
        }
        open.sort_by_key(|open| open.fd);
        Ok(open)
    }
}

impl Described {
    fn of(entry: &FileEntry) -> Self {
        let inet = entry.inet.as_ref().map(Socket::of_inet);
        let unix = || entry.unix.as_ref().map(Socket::of_unix);
        let path = entry.regular.as_ref();
        Self {
            path: path.map(|regular| text(&regular.name, MAX_PATH)),
            socket: inet.or_else(unix),
            ..Self::nameless(kind(entry.kind))
        }
    }

    fn nameless(kind: &'static str) -> Self {
        Self {
            kind,
            path: None,
            socket: None,
        }
    }
}

/// `fd_types`.
fn kind(number: i32) -> &'static str {
    match number {
        1 => "file",
        2 => "pipe",
        3 => "fifo",
        4 => "inet",
        5 => "unix",
        6 => "eventfd",
        7 => "epoll",
        8 => "inotify",
        9 => "signalfd",
        10 => "packet",
        11 => "terminal",
        12 => "fanotify",
        13 => "netlink",
        14 => "namespace",
        15 => "tun",
        16 => "external",
        17 => "timerfd",
        18 => "memfd",
        19 => "bpf",
        20 => "pidfd",
        _ => "unknown",
    }
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    crate::image::criu_file::fuzz::<FileEntry>(bytes, FILES_MAGIC);
    crate::image::criu_file::fuzz::<FdinfoEntry>(bytes, FDINFO_MAGIC);
}
