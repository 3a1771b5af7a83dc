//! The directory in which a pulled image grows, beside the requested one: it gets that name once
//! all of it is on disk. Files that an interrupted pull has verified are used again.

pub(crate) mod in_part;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stasis_engine::image::directory::in_use::{self, InUse};
use stasis_host::file_lock::{Sharing, Tried, try_lock};
use stasis_linux::file;
use stasis_memory_store::Pack;
use stasis_oci_image::Descriptor;

use crate::error::MoveError;
use crate::local::beside::Beside;
use crate::places::Elsewhere;
use in_part::{InPart, is_lost};

pub(crate) use stasis_lifecycle::at_create::pulled::GROWING as ENDING;
/// A file that has not been verified yet.
const NEW: &str = ".new";

/// The directory.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) beside: Beside,
    target: PathBuf,
}

impl Staging {
    /// Makes the directory, or resumes an earlier pull's.
    pub(crate) fn begin(target: &Path) -> Result<Self, MoveError> {
        let target = std::path::absolute(target).map_err(MoveError::io("find", target))?;
        refuse_used(&target)?;
        let beside = Beside::begin(&target, ENDING)?;
        Ok(Self { beside, target })
    }

    /// Returns the path it has for now.
    pub(crate) fn path(&self) -> &Path {
        self.beside.path()
    }

    /// Returns whether a file of this name and length exists, and so was verified.
    pub(crate) fn has(&self, name: &str, bytes: u64) -> bool {
        is_there(self.path(), name, bytes)
    }

    /// Writes a file, which gets its name once it is on disk. If it fails, there is no file of the
    /// name.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> Result<(), MoveError> {
        let new = self.path().join(part_of(name));
        file::remove(&new).map_err(MoveError::io("remove", &new))?;
        let mut file = file::create_new(&new).map_err(MoveError::io("make", &new))?;
        let written = file.write_all(contents);
        written.map_err(MoveError::io("write", &new))?;
        let path = self.path().join(name);
        let named = file.sync_all().and_then(|()| fs::rename(&new, &path));
        named.map_err(MoveError::io("write", &path))
    }

    /// Fetches a pack, or the rest of one of which a pull that was killed or has lost the
    /// connection has left a part; it gets its name when it is verified and on disk. Returns how
    /// many bytes of its blob existed. If it fails, there is no file of the name.
    pub(crate) fn write_pack(
        &self,
        pack: (&Pack, &Descriptor),
        from: &dyn Elsewhere,
    ) -> Result<u64, MoveError> {
        let name = pack.0.file_name();
        let new = self.path().join(part_of(&name));
        let part = InPart::open(new.clone(), pack, &|_| Ok(()));
        let complete = part.and_then(|mut part| part.complete(from));
        let there = complete.inspect_err(|error| {
            // A part that may be something else, or fills the disk, is of no use to another try.
            if !is_lost(error) {
                let _ = file::remove(&new);
            }
        })?;
        let path = self.path().join(name);
        fs::rename(&new, &path).map_err(MoveError::io("write", &path))?;
        Ok(there)
    }

    /// Gives the directory its name while its packs still grow: from now on others use it too, and
    /// none removes it. If it fails, the pulled files stay, and the next pull begins anew.
    pub(crate) fn show(self) -> Result<(PathBuf, InUse), MoveError> {
        let shared = try_lock(self.beside.file(), Sharing::Shared);
        match shared.map_err(MoveError::io("lock", self.path()))? {
            Tried::Locked => {}
            Tried::Held => return Err(MoveError::Busy(self.target)),
        }
        self.name()?;
        let in_use = in_use::hold(&self.target).map_err(MoveError::refused)?;
        Ok((self.target, in_use))
    }

    /// Gives the directory its name; if that fails, the next pull resumes this one.
    pub(crate) fn finish(self) -> Result<PathBuf, MoveError> {
        self.name()?;
        Ok(self.target)
    }

    fn name(&self) -> Result<(), MoveError> {
        let synced = rustix::fs::syncfs(self.beside.file()).map_err(io::Error::from);
        synced.map_err(MoveError::io("sync", self.path()))?;
        refuse_used(&self.target)?;
        // The directory replaces an empty one (rename(2)).
        let named = fs::rename(self.path(), &self.target);
        named.map_err(MoveError::io("make", &self.target))?;
        let parent = self.target.parent().unwrap_or(&self.target);
        file::sync_directory(parent).map_err(MoveError::io("sync", parent))
    }
}

/// Returns whether a directory has a file of this name and length.
pub(crate) fn is_there(directory: &Path, name: &str, bytes: u64) -> bool {
    let found = directory.join(name).symlink_metadata();
    found.is_ok_and(|found| found.is_file() && found.len() == bytes)
}

/// Returns the name under which a file grows until it is verified.
pub(crate) fn part_of(name: &str) -> String {
    format!("{name}{NEW}")
}

/// Refuses to replace anything but an empty directory.
pub(crate) fn refuse_used(target: &Path) -> Result<(), MoveError> {
    match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(MoveError::io("find", target)(error)),
        Ok(found) if !found.is_dir() => Err(MoveError::There(target.to_owned())),
        Ok(_) => {
            let mut entries = fs::read_dir(target).map_err(MoveError::io("read", target))?;
            match entries.next() {
                None => Ok(()),
                Some(_) => Err(MoveError::There(target.to_owned())),
            }
        }
    }
}
