//! Brings a file system to disk, within a time limit.
//!
//! A thread that waits in the kernel for a lost disk, or file server, cannot be ended; and a
//! process does not end before all its threads have. So a process of its own does it, which may be
//! left behind.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use stasis_linux::file_system::FileSystem;
use stasis_linux::procfs::MemInfo;

use crate::capabilities::Work;
use crate::respawn;

/// The first argument of that process; neither runc nor crun has this verb.
const VERB: &str = "stasis-sync";
/// Slower than any disk that images are written to, in bytes a second.
const SLOWEST: u64 = 20 << 20;
const POLL: Duration = Duration::from_millis(5);

/// The job of that process.
#[derive(Debug)]
pub struct Sync(());

impl Sync {
    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-sync").map(Self)
    }

    /// Brings the file system of its standard input to disk; returns the error's number.
    #[must_use]
    pub fn run(self) -> u8 {
        let may_begin = Work::Disk.give_up_others().map_err(|_| Errno::PERM);
        match may_begin.and_then(|()| rustix::fs::syncfs(io::stdin())) {
            Ok(()) => 0,
            Err(error) => u8::try_from(error.raw_os_error()).unwrap_or(u8::MAX),
        }
    }
}

/// Waits until everything that was written to a file system is on disk, as [`FileSystem::sync`]. No
/// longer than `limit`, and the time that the slowest disk needs for all unwritten bytes.
///
/// # Errors
/// The same; [`io::ErrorKind::TimedOut`].
pub fn sync(system: &FileSystem, limit: Duration) -> io::Result<()> {
    let limit = limit.saturating_add(Duration::from_secs(unwritten() / SLOWEST));
    // The same open file, which reports errors.
    let directory: OwnedFd = system.try_clone()?;
    let started = respawn::start_with(VERB, &(), [directory.into(), Stdio::null()])?;
    let status = wait(started, limit)?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code)),
        None => Err(io::Error::other(format!("{VERB} ended with {status}"))),
    }
}

fn wait(mut child: Child, limit: Duration) -> io::Result<ExitStatus> {
    let deadline = Instant::now().checked_add(limit);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let seconds = limit.as_secs_f64();
            let text = format!("the disk has not taken it within {seconds} s");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        sleep(POLL);
    }
}

/// Returns the bytes that all file systems together have to write (proc_meminfo(5)).
fn unwritten() -> u64 {
    let Ok(info) = MemInfo::read() else { return 0 };
    let bytes = ["Dirty", "Writeback"].map(|name| info.bytes(name).unwrap_or(0));
    bytes.iter().sum()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_waits_for_a_disk_is_left_behind() {
        let mut sleeper = Command::new("sleep");
        let child = sleeper.arg("600").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        let error = wait(child, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("within 0.02 s"), "{error}");
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        let ended = Command::new("true").spawn().unwrap();
        let status = wait(ended, Duration::from_secs(60)).unwrap();
        assert!(status.success());
    }
}
