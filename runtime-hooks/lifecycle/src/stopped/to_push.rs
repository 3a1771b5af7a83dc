//! The images of stopped containers that are still to be pushed: a note of each, which is on disk
//! before its container can end, and goes when the registry has the image, or it is not needed
//! there.
//!
//! The pushing process may be killed, and the machine may restart: the next one goes on
//! ([`push_again`](super::push_again)). A pusher holds the note locked, and only it removes that.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use stasis_host::file_lock::{Lock, Sharing, Tried, lock, try_lock};
use stasis_linux::directory::Directory;
use stasis_linux::file::{self, Access, Durability};

use crate::stopped::ENDING;
use crate::stopped::key::is_name;

/// Below the directory of images for new containers. No container can name it: it begins with a
/// dot.
const DIRECTORY: &str = ".to-push";
const VERSION: u32 = 1;
/// Twice what a path may have.
const MOST_BYTES: u64 = 8 << 10;
/// More than a node has keys and images of each.
const MOST_NOTES: usize = 10_000;

/// An image that is to be pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToPush {
    /// The directory of all images.
    all: PathBuf,
    /// The key, of a pod's container below its namespace.
    pub key: String,
    /// The image's name in the directory of the key.
    pub name: String,
    /// The id of its container.
    pub container: String,
    /// The time when the container was stopped.
    pub began: SystemTime,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    key: String,
    name: String,
    container: String,
    began: SystemTime,
}

impl ToPush {
    /// Returns the note of an image below `all`.
    pub fn new(all: &Path, image: &Path, container: &str, began: SystemTime) -> io::Result<Self> {
        let all = fs::canonicalize(all)?;
        let below = image.strip_prefix(&all).ok().and_then(Path::to_str);
        let parts = below.and_then(|below| below.rsplit_once('/'));
        let (key, name) = parts.ok_or(io::ErrorKind::InvalidInput)?;
        let (key, name) = (key.to_owned(), name.to_owned());
        let container = container.to_owned();
        let found = Self {
            all,
            key,
            name,
            container,
            began,
        };
        match found.is_sound() {
            true => Ok(found),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns its directory.
    pub fn image(&self) -> PathBuf {
        self.all.join(&self.key).join(&self.name)
    }

    /// Notes it, on disk when this returns, unless it was noted before: a process that has the note
    /// locked keeps it.
    pub fn note(&self) -> io::Result<()> {
        Directory::make(&self.all.join(DIRECTORY), 0o700)?;
        if self.path().symlink_metadata().is_ok() {
            return Ok(());
        }
        let text = serde_json::to_vec(&Document {
            version: VERSION,
            key: self.key.clone(),
            name: self.name.clone(),
            container: self.container.clone(),
            began: self.began,
        })?;
        file::replace(&self.path(), &text, Access::Private, Durability::Durable)?;
        file::sync_directory(&self.all)
    }

    /// Waits until no other process holds it; `None` if there is no note.
    pub fn hold(&self) -> io::Result<Option<Held>> {
        loop {
            let Some(opened) = open(&self.path())? else {
                return Ok(None);
            };
            lock(&opened)?;
            // The holder before may have removed it.
            if file::is_at(&opened, &self.path()) {
                let (path, to_push) = (self.path(), self.clone());
                return Ok(Some(Held {
                    path,
                    to_push,
                    _lock: Lock::of(opened),
                }));
            }
        }
    }

    /// Named by the time, since it is the beginning of an image's name, and by the key, which may
    /// be longer than a file's name.
    fn path(&self) -> PathBuf {
        let key = blake3::hash(self.key.as_bytes()).to_hex();
        let name = format!("{}.{}", self.name, &key[..16]);
        self.all.join(DIRECTORY).join(name)
    }

    fn is_sound(&self) -> bool {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-:.".contains(&byte);
        let is_image = self.name.ends_with(ENDING) && !self.name.starts_with('.');
        is_name(&self.key) && is_image && self.name.bytes().all(is_known)
    }
}

/// A note that no other process holds.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    /// The note.
    pub to_push: ToPush,
    _lock: Lock,
}

impl Held {
    /// Removes the note: there is nothing to push any more.
    pub fn remove(self) {
        let _ = file::remove(&self.path);
    }
}

/// Returns all that is noted below `all`, the latest first. Other files are ignored.
pub fn noted(all: &Path) -> io::Result<Vec<ToPush>> {
    let directory = all.join(DIRECTORY);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let all = fs::canonicalize(all)?;
    let mut found = Vec::new();
    for entry in entries.take(MOST_NOTES) {
        let path = entry?.path();
        found
            .extend(read(&all, &path).filter(|noted| noted.path().file_name() == path.file_name()));
    }
    found.sort_unstable_by(|one, other| (&other.name, &other.key).cmp(&(&one.name, &one.key)));
    Ok(found)
}

/// Holds the notes below `all` that no process holds, the latest first.
pub fn hold_all(all: &Path) -> io::Result<Vec<Held>> {
    let mut held = Vec::new();
    for to_push in noted(all)? {
        let path = to_push.path();
        let Ok(Some(opened)) = open(&path) else {
            continue;
        };
        let locked = matches!(try_lock(&opened, Sharing::Exclusive), Ok(Tried::Locked));
        if locked && file::is_at(&opened, &path) {
            held.push(Held {
                path,
                to_push,
                _lock: Lock::of(opened),
            });
        }
    }
    Ok(held)
}

fn read(all: &Path, path: &Path) -> Option<ToPush> {
    let text = file::read(path, MOST_BYTES).ok()??;
    let document: Document = serde_json::from_slice(&text).ok()?;
    let found = ToPush {
        all: all.to_owned(),
        key: document.key,
        name: document.name,
        container: document.container,
        began: document.began,
    };
    (document.version == VERSION && found.is_sound()).then_some(found)
}

/// Opens it for writing, without which NFS gives no lock of one's own (flock(2), "NFS details").
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    match options
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

#[cfg(test)]
mod tests;
