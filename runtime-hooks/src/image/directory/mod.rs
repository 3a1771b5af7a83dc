//! The image directory of a checkpoint as a transaction: an earlier image in it stays whole until
//! the new one is complete.
//!
//! A directory without an image is dumped into directly. In one that holds an image, the new image
//! grows in a directory below it:
//!
//! 1. `.stasis-new` without `inventory.img`: a dump is under way, or was cut off. The next
//!    checkpoint removes it; a restore leaves it alone.
//! 2. `.stasis-new` with `inventory.img`: the new image is complete. Once it is on disk, it is
//!    renamed to `.stasis-complete`. If the machine has restarted meanwhile, nobody knows what had
//!    reached the disk by then, and it counts as cut off.
//! 3. `.stasis-complete` with `inventory.img`: the earlier image makes way. Its GPU facts and bulk
//!    memory are removed, then `inventory.img` is moved up.
//! 4. `.stasis-complete` without it: the earlier image is gone. The other files are moved up.
//!
//! CRIU writes `inventory.img` last of all (criu/cr-dump.c, `cr_dump_tasks`), so it marks a
//! complete image even if nobody was left to read CRIU's exit code. Each step can be cut off
//! at any point and done again, and the next checkpoint into the directory or restore from it does
//! so ([`settle`]). CRIU's own files of the earlier image that the new one does not have stay, as
//! they do without us.
//!
//! The image of a container that is checkpointed together with others grows below its directory in
//! any case, and takes its place only if the group is complete (`operation/group.rs`).
//!
//! Whoever works on the lower directory holds it locked (flock): the operation, and the low-level
//! runtime and CRIU, which inherit the lock and go on if the operation is killed. Whoever removes
//! an image has the upper directory to itself ([`in_use`]).

mod error;
mod give_up;
mod in_group;
pub(crate) mod in_use;
mod lock;
pub(crate) mod removal;
mod roll_forward;
pub(crate) mod staged_contents;
pub(crate) mod taken_over;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::{FdFlags, fcntl_setfd};
use stasis_linux::file;
use stasis_linux::file_system::FileSystem;
use stasis_memory_store::{INDEX_FILE, refuse_arriving};

use crate::host::boot::boot_id;
use crate::image::manifest;
use crate::operation::group::Group;
use crate::request::CheckpointRequest;
pub use error::ImageDirectoryError;
use in_group::InGroup;
use in_use::InUse;
use lock::make_locked;
pub(crate) use roll_forward::{is_settled, settle};
use roll_forward::{rename, roll_forward};

/// What CRIU writes last.
pub(crate) const INVENTORY: &str = "inventory.img";
/// Where a new image grows.
const NEW: &str = ".stasis-new";
/// Its name once it is complete.
const COMPLETE: &str = ".stasis-complete";
/// Has the id of the boot in which it was begun.
const BOOT: &str = ".stasis-boot";
/// Has the id of the group that it is complete with.
const GROUP: &str = ".stasis-group";
/// More than an id has.
const MAX_BOOT_BYTES: u64 = 1 << 10;
/// CRIU's link to the image that has the memory which this one lacks (criu/page-xfer.c).
pub(crate) const PARENT: &str = "parent";
/// Where an image came from and went, beside it (`cli/images/origin.rs`).
pub(crate) const ORIGIN: &str = "stasis-origin.json";

/// An image that is being written.
#[derive(Debug)]
pub struct NewImage {
    /// Where it belongs.
    directory: PathBuf,
    /// Opened before the dump, so that it has the errors of all that the dump writes.
    file_system: FileSystem,
    place: Place,
    /// It takes its place when that of all others of the group may be taken.
    in_group: InGroup,
    /// Whoever removes images does not begin here meanwhile.
    _in_use: InUse,
}

/// Where a new image grows.
#[derive(Debug)]
enum Place {
    /// Where it belongs.
    Direct,
    /// In a directory of its own, locked, until it is complete.
    Staged { staging: PathBuf, lock: File },
}

impl NewImage {
    /// Makes a place for the image of a checkpoint into a directory, which is made if it is not
    /// there, as runc does.
    ///
    /// # Errors
    /// [`ImageDirectoryError`].
    pub(crate) fn begin(directory: &Path) -> Result<Self, ImageDirectoryError> {
        Self::begin_in(directory, None)
    }

    /// The same for an image that takes its place together with those of a group.
    ///
    /// # Errors
    /// As [`NewImage::begin`].
    pub(crate) fn begin_in(
        directory: &Path,
        group: Option<&Group>,
    ) -> Result<Self, ImageDirectoryError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(failed("make", directory))?;
        let may_write = access(directory, Access::WRITE_OK | Access::EXEC_OK);
        may_write.map_err(|error| failed("write into", directory)(error.into()))?;
        let in_use = in_use::hold(directory)?;
        refuse_arriving(directory)?;
        settle(directory)?;
        let file_system = FileSystem::of(directory).map_err(failed("open", directory))?;
        let staging = directory.join(NEW);
        let place = if group.is_some() || holds_image(directory) {
            let lock = make_locked(&staging)?;
            sign(&staging, group).map_err(failed("write", &staging))?;
            Place::Staged { staging, lock }
        } else {
            Place::Direct
        };
        let directory = directory.to_owned();
        Ok(Self {
            directory,
            file_system,
            place,
            in_group: group.map_or(InGroup::No, |_| InGroup::Yes),
            _in_use: in_use,
        })
    }

    /// Where it belongs.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where its files go for now.
    pub(crate) fn path(&self) -> &Path {
        match &self.place {
            Place::Direct => &self.directory,
            Place::Staged { staging, .. } => staging,
        }
    }

    /// Runs the low-level runtime with the options that replace the caller's.
    ///
    /// # Errors
    /// The error of `run`.
    pub(crate) fn dump<T>(
        &self,
        options: &CheckpointRequest,
        run: impl FnOnce(&[(&str, &OsStr)]) -> io::Result<T>,
    ) -> io::Result<T> {
        let Place::Staged { staging, lock } = &self.place else {
            return run(&[]);
        };
        // Without a work directory runc and crun put CRIU's log and statistics into the image
        // directory.
        let work = options.work_path.as_deref().unwrap_or(&self.directory);
        // Relative to the image directory (criu/page-xfer.c).
        let parent = options.parent_path.as_ref();
        let parent = parent.map(|parent| Path::new("..").join(parent));
        let mut given = vec![
            ("--image-path", staging.as_os_str()),
            ("--work-path", work.as_os_str()),
        ];
        given.extend(
            parent
                .iter()
                .map(|path| ("--parent-path", path.as_os_str())),
        );
        fcntl_setfd(lock, FdFlags::empty())?;
        let done = run(&given);
        fcntl_setfd(lock, FdFlags::CLOEXEC)?;
        done
    }

    /// Brings the image to disk by `sync`, with its bulk memory that is in a `store` on another
    /// file system, and then replaces an earlier image by it.
    ///
    /// # Errors
    /// [`ImageDirectoryError::Incomplete`], [`ImageDirectoryError::NotOnDisk`]: the earlier image
    /// is as it was. Any other: the new image is complete, and the next restore from the directory,
    /// or checkpoint into it, goes on.
    pub(crate) fn commit(
        &self,
        store: Option<&FileSystem>,
        sync: impl Fn(&FileSystem) -> io::Result<()>,
    ) -> Result<(), ImageDirectoryError> {
        check_complete(self.path())?;
        for system in store.into_iter().chain([&self.file_system]) {
            sync(system).map_err(|source| ImageDirectoryError::NotOnDisk {
                path: system.path().to_owned(),
                source,
            })?;
        }
        match self.in_group {
            InGroup::No => self.replace_earlier(),
            InGroup::Yes => Ok(()),
        }
    }

    fn replace_earlier(&self) -> Result<(), ImageDirectoryError> {
        let Place::Staged { staging, .. } = &self.place else {
            return Ok(());
        };
        rename(staging, &self.directory.join(COMPLETE))?;
        roll_forward(&self.directory)
    }
}

/// Whether an image that stasis has made, or part of one, is in a directory.
pub(crate) fn is_ours(directory: &Path) -> bool {
    let ours = [manifest::FILE_NAME, INDEX_FILE, NEW, COMPLETE];
    ours.iter().any(|name| exists(&directory.join(name)))
}

/// Whether a directory holds an image that CRIU can restore.
pub(crate) fn has_inventory(directory: &Path) -> bool {
    let found = directory.join(INVENTORY).symlink_metadata();
    found.is_ok_and(|inventory| inventory.is_file() && inventory.len() > 0)
}

/// The directories that an image which was put into `directory` may be in.
pub(crate) fn places(directory: &Path) -> [PathBuf; 3] {
    let (new, complete) = (directory.join(NEW), directory.join(COMPLETE));
    [directory.to_owned(), new, complete]
}

/// Notes in which boot an image was begun, and in which group.
fn sign(staging: &Path, group: Option<&Group>) -> io::Result<()> {
    if let Some(group) = group {
        fs::write(staging.join(GROUP), group.id())?;
    }
    fs::write(staging.join(BOOT), boot_id().unwrap_or_default())
}

/// Whether the machine has not restarted since an image was begun.
fn is_of_this_boot(staging: &Path) -> io::Result<bool> {
    let boot = file::read(&staging.join(BOOT), MAX_BOOT_BYTES)?;
    Ok(boot.is_some() && boot == boot_id().map(String::into_bytes))
}

/// What has to hold before an image may take the place of an earlier one.
///
/// # Errors
/// [`ImageDirectoryError::Incomplete`].
fn check_complete(image: &Path) -> Result<(), ImageDirectoryError> {
    if !has_inventory(image) || staged_contents::are_staged(image) {
        return Err(ImageDirectoryError::Incomplete(image.to_owned()));
    }
    Ok(())
}

fn holds_image(directory: &Path) -> bool {
    is_ours(directory) || exists(&directory.join(INVENTORY))
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ImageDirectoryError {
    let path = path.to_owned();
    move |source| ImageDirectoryError::Io {
        action,
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests;
