//! Begins an image.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::{FdFlags, fcntl_setfd};
use stasis_config::Settings;
use stasis_host::boot::boot_id;
use stasis_linux::file_system::FileSystem;
use stasis_memory_store::refuse_arriving;

use super::lock::{lock, remove_staging};
use super::move_up::move_up_soon;
use super::rest::{Rest, finish_locked};
use super::step::{change, step};
use super::{BOOT, ImageDirectoryError, NEW, NewImage, SHARED, failed};
use crate::operation::outcome::SharedOutcome;
use crate::request::CheckpointRequest;

impl NewImage {
    /// Begins an image in a directory, which is made if it does not exist. A whole image that a
    /// killed writer has left is put in its place first; a partial one is removed.
    ///
    /// # Errors
    /// [`ImageDirectoryError::Busy`] if another process writes an image there,
    /// [`ImageDirectoryError::Read`] if a process reads one that is still to be moved up: nothing
    /// is changed.
    pub(crate) fn begin(
        settings: &Settings,
        directory: &Path,
        shared: Option<&SharedOutcome>,
    ) -> Result<Self, ImageDirectoryError> {
        let mut with_parents = DirBuilder::new();
        with_parents.recursive(true).mode(0o700);
        change(|| with_parents.create(directory)).map_err(failed("make", directory))?;
        // Before the processes are locked. Root, too, gets EROFS here on a read-only file system.
        let may_write = access(directory, Access::WRITE_OK | Access::EXEC_OK);
        may_write.map_err(|error| failed("write into", directory)(error.into()))?;
        refuse_arriving(directory)?;
        let staging = directory.join(NEW);
        let lock = make_locked(settings, &staging)?;
        let prepared = move_up_soon(directory).and_then(|()| {
            sign(&staging, shared).map_err(failed("write", &staging))?;
            FileSystem::of(directory).map_err(failed("open", directory))
        });
        let file_system = prepared.inspect_err(|_| {
            let _ = remove_staging(&staging);
        })?;
        Ok(Self {
            directory: directory.to_owned(),
            file_system,
            staging,
            lock,
            shares_outcome: shared.is_some(),
        })
    }

    /// Runs the command that writes CRIU's files, with the options that the low-level runtime needs
    /// beside its caller's. Its processes have the lock, too: as long as CRIU lives, no process
    /// takes the image for one that was left. CRIU's log goes where it would have gone.
    ///
    /// # Errors
    /// As of `run` and fcntl(2).
    pub(crate) fn dump<T>(
        &self,
        options: &CheckpointRequest,
        run: impl FnOnce(&[(&str, &OsStr)]) -> io::Result<T>,
    ) -> io::Result<T> {
        // CRIU takes it as relative to the image's directory, which is one deeper.
        let parent = options.parent_path.as_ref();
        let parent = parent.map(|parent| Path::new("..").join(parent));
        let mut given = vec![
            ("--image-path", self.staging.as_os_str()),
            ("--work-path", options.work().as_os_str()),
        ];
        let parent = parent.iter().map(|path| path.as_os_str());
        given.extend(parent.map(|path| ("--parent-path", path)));
        self.lending_lock(|| run(&given))
    }

    /// Calls `start`; a process that it starts keeps others from the image as long as it lives.
    ///
    /// # Errors
    /// As of `start` and fcntl(2).
    pub(super) fn lending_lock<T>(&self, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        fcntl_setfd(&self.lock, FdFlags::empty())?;
        let started = start();
        fcntl_setfd(&self.lock, FdFlags::CLOEXEC)?;
        started
    }
}

/// Makes a new directory, with nothing in it, and locks it.
fn make_locked(settings: &Settings, staging: &Path) -> Result<File, ImageDirectoryError> {
    loop {
        step();
        if let Some(_lock) = lock(staging)? {
            match finish_locked(settings, staging)? {
                Rest::Committed => {}
                Rest::NotWhole => remove_staging(staging)?,
                Rest::Undecided => {
                    let directory = staging.parent().unwrap_or(staging);
                    return Err(ImageDirectoryError::Busy(directory.to_owned()));
                }
            }
        }
        match change(|| DirBuilder::new().mode(0o700).create(staging)) {
            // Another writer begins, and is waited for.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(failed("make", staging))?,
        }
        if let Some(lock) = lock(staging)?
            && is_empty(staging)?
        {
            return Ok(lock);
        }
    }
}

fn is_empty(staging: &Path) -> Result<bool, ImageDirectoryError> {
    let mut entries = fs::read_dir(staging).map_err(failed("read", staging))?;
    Ok(entries.next().is_none())
}

fn sign(staging: &Path, shared: Option<&SharedOutcome>) -> io::Result<()> {
    if let Some(outcome) = shared {
        change(|| fs::write(staging.join(SHARED), &outcome.id))?;
    }
    change(|| fs::write(staging.join(BOOT), boot_id().unwrap_or_default()))
}
