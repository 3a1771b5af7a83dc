//! Opens the image of a directory, to read it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use stasis_config::Settings;
use stasis_host::directory_lock::Locked;

use super::in_use::{self, InUse, hold_alone};
use super::lock::lock_now;
use super::move_up::{is_committed, move_up};
use super::rest::finish_locked;
use super::step::{PATIENCE, pause, step};
use super::{BOOT, COMPLETE, ImageDirectoryError, MOVING, NEW, exists, has_inventory};

/// An image that no process replaces or removes as long as this value lives.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    _in_use: InUse,
}

impl Opened {
    /// Returns the directory of its files.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens the image of a directory. A whole one that a killed writer has left is put in its place
/// first; one that is being written is not waited for.
///
/// # Errors
/// [`ImageDirectoryError`]; also if a whole image cannot be put in its place: no caller silently
/// gets an earlier one instead.
pub fn open(settings: &Settings, directory: &Path) -> Result<Opened, ImageDirectoryError> {
    let staging = directory.join(NEW);
    if let Locked::Ours(_lock) = lock_now(&staging)? {
        let is_in_doubt = !exists(&staging.join(BOOT));
        match finish_locked(settings, &staging) {
            // Reported before, and the earlier image is the directory's.
            Err(ImageDirectoryError::NotOnDisk { .. }) if is_in_doubt => {}
            finished => drop(finished?),
        }
    }
    let complete = directory.join(COMPLETE);
    let deadline = Instant::now() + PATIENCE;
    loop {
        if is_committed(directory)?
            && let Some(_alone) = hold_alone(directory)?
        {
            // On a file system that is read-only it is read where it is.
            move_up(directory).or_else(|error| match has_inventory(&complete) {
                true => Ok(()),
                false => Err(error),
            })?;
        }
        step();
        let is_late = Instant::now() > deadline;
        match in_use::hold(directory) {
            // Another process moves files up, or removes the image.
            Err(ImageDirectoryError::Removed(_)) if !is_late => {}
            in_use => {
                let in_use = in_use?;
                step();
                if let Some(path) = readable(directory) {
                    return Ok(Opened {
                        path,
                        _in_use: in_use,
                    });
                }
                if is_late {
                    return Err(ImageDirectoryError::Read(directory.to_owned()));
                }
            }
        }
        pause();
    }
}

/// Returns where the image of a directory is now, for a caller that only looks at it.
pub fn current(directory: &Path) -> PathBuf {
    readable(directory).unwrap_or_else(|| directory.to_owned())
}

/// Returns where a caller that keeps others from moving the image reads it; `None` if some of its
/// files are moved up and others are not.
fn readable(directory: &Path) -> Option<PathBuf> {
    let complete = directory.join(COMPLETE);
    match exists(&complete) {
        true => Some(complete),
        false if exists(&directory.join(MOVING)) => None,
        false => Some(directory.to_owned()),
    }
}
