//! A checkpoint that makes an image of a key shows it by a lock: a container that is to begin with
//! the latest image waits for it, since the caller that stopped the earlier container has seen its
//! end before its image is complete.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stasis_host::cancel::Cancel;
use stasis_host::file_lock::{MOMENT, Sharing, Tried, lock_within, try_lock};
use stasis_linux::directory::{Directory, Earlier};

use crate::stopped::ENDING;
use stasis_engine::image::directory::is_being_written;

/// The file in the directory of a key. No image has a name that begins with a dot.
const FILE_NAME: &str = ".stopping";
const POLL: Duration = Duration::from_millis(20);

/// Shows others that an image is made in this directory, as long as the file is open. Others may do
/// so at the same time.
///
/// # Errors
/// The file cannot be made or locked.
pub(crate) fn show(directory: &Directory) -> io::Result<File> {
    let file = directory.log(FILE_NAME, Earlier::Continued)?;
    lock_within(MOMENT, &file, Sharing::Shared)?;
    Ok(file)
}

/// Waits up to `limit` until no process makes an image in this directory.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::TimedOut`], also if a signal asks for the end.
pub(crate) fn wait(directory: &Path, limit: Duration, cancel: &Cancel) -> io::Result<()> {
    let Some(file) = open(directory)? else {
        return Ok(());
    };
    let deadline = Instant::now() + limit;
    let wait_while = |is_so: &dyn Fn() -> io::Result<bool>| {
        while is_so()? {
            if Instant::now() > deadline || cancel.requested() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep(POLL);
        }
        Ok(())
    };
    wait_while(&|| Ok(try_lock(&file, Sharing::Exclusive)? == Tried::Held))?;
    // No stop waits for this lock meanwhile.
    drop(file);
    wait_while(&|| has_writer(directory))
}

/// Whether an image of a stop is written. If the processes that held the key's lock were killed,
/// that is its keeper, which seals it.
fn has_writer(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_of_stop = entry
            .file_name()
            .as_encoded_bytes()
            .ends_with(ENDING.as_bytes());
        if is_of_stop && is_being_written(&entry.path()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens the file for writing, without which NFS gives no lock of one's own (flock(2), "NFS
/// details"). `None`: no process has made an image there.
fn open(directory: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(directory.join(FILE_NAME), flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        opened => Ok(Some(opened?.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_host::file_lock::unlock;

    #[test]
    fn who_wants_the_latest_image_waits_for_those_who_make_one() {
        let path = tempfile::tempdir().unwrap();
        let wait = || wait(path.path(), Duration::ZERO, &Cancel::not_needed());
        wait().unwrap();
        let directory = Directory::make(path.path(), 0o700).unwrap();
        let both = [(); 2].map(|()| show(&directory).unwrap());
        let waits = open(path.path()).unwrap().unwrap();
        for file in both.iter().chain([&waits]) {
            let mode = rustix::fs::fcntl_getfl(file).unwrap();
            assert!(mode.contains(OFlags::RDWR), "NFS locks need both: {mode:?}");
        }
        let [first, second] = both;
        drop(first);
        assert_eq!(wait().unwrap_err().kind(), io::ErrorKind::TimedOut);
        // A process that another test has just started may have the file open for a moment.
        unlock(&second).unwrap();
        wait().unwrap();
    }
}
