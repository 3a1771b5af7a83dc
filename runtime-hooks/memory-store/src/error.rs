//! Errors of a store.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Why memory cannot be stored, or stored memory cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum StoreError {
    /// A file or directory cannot be accessed; [`io::ErrorKind::InvalidData`] if it is no regular
    /// file, or is larger than any index.
    #[error("cannot {action} {path}")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "cannot write {path}: {} ({free_bytes} bytes are free on this file system)",
        full(source)
    )]
    Full {
        path: PathBuf,
        free_bytes: u64,
        source: io::Error,
    },
    /// A pack that an index names does not exist.
    #[error("{path} is missing: a part of the checkpoint's memory was not copied or was deleted")]
    Missing { path: PathBuf },
    #[error("{path} has version {found}; this stasis reads version {known} alone")]
    Version {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("{path} is damaged: {what}")]
    Damaged { path: PathBuf, what: String },
    /// A pack is not as an index describes it.
    #[error("{problem}; chunk {chunk} of the area at {area:#x} of process {process} is in it")]
    Needed {
        #[source]
        problem: Box<StoreError>,
        process: i32,
        area: u64,
        /// The number of the first chunk that is in the pack.
        chunk: u32,
    },
    #[error(
        "the image {image} is arriving from elsewhere, and not all of it is there; wait until its \
         file stasis-arriving has gone"
    )]
    Arriving { image: PathBuf },
    #[error(
        "the image {image} has arrived in part, and nobody fetches the rest: {why}; pull it again \
         into this directory"
    )]
    CutOff { image: PathBuf, why: String },
    #[error("the memory of {image} is in a store, and which directory of it is not known")]
    NoDirectory { image: PathBuf },
    #[error(
        "chunk {chunk} of the area at {area:#x} of process {process} cannot be read from {path} at \
         {offset}: {what}; restore from another copy of the image, or from another checkpoint"
    )]
    Chunk {
        path: PathBuf,
        process: i32,
        area: u64,
        chunk: u32,
        offset: u64,
        what: String,
    },
    #[error(
        "cannot {action} the file in memory for the contents of process {process} at {area:#x}"
    )]
    MemoryFile {
        action: &'static str,
        process: i32,
        area: u64,
        source: io::Error,
    },
    /// CRIU's images have a hole, and there is no file to fill it.
    #[error("there is no file in memory for the contents of process {process} at {area:#x}")]
    NoFile { process: i32, area: u64 },
    #[error(
        "the image is more than a registry takes: {what}; nothing was sent, and the image stays as \
         it is; keep it in a file system"
    )]
    TooMuch { what: String },
    #[error("a thread that moved memory panicked, which is a fault in stasis")]
    Panic,
    #[error("memory cannot be stored: {what}")]
    Impossible { what: String },
}

fn full(source: &io::Error) -> &'static str {
    if source.raw_os_error() == Some(Errno::DQUOT.raw_os_error()) {
        "the quota is used up"
    } else {
        "the disk is full"
    }
}

impl StoreError {
    /// For `map_err`: the error of an action on a file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    /// For `map_err`: the error of a write. The error of a full disk has the free bytes.
    pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            let full = [Errno::NOSPC, Errno::DQUOT].map(|error| Some(error.raw_os_error()));
            if !full.contains(&source.raw_os_error()) {
                return Self::Io {
                    action: "write",
                    path,
                    source,
                };
            }
            Self::Full {
                free_bytes: free_bytes(&path),
                path,
                source,
            }
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }
}

/// Bytes that are free on the file system of a file or its directory; 0 if that is unknown.
fn free_bytes(path: &Path) -> u64 {
    let parent = path.parent().unwrap_or(path);
    let system = rustix::fs::statvfs(path).or_else(|_| rustix::fs::statvfs(parent));
    system.map_or(0, |system| system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_used_up_quota_say_so() {
        for (error, says) in [
            (Errno::NOSPC, "the disk is full"),
            (Errno::DQUOT, "the quota is used up"),
        ] {
            let error = StoreError::writing(Path::new("/tmp/a.pack"))(error.into());
            let text = error.to_string();
            assert!(text.starts_with(&format!("cannot write /tmp/a.pack: {says} (")));
            assert!(!text.contains("(0 bytes"), "{text}");
        }
    }
}
