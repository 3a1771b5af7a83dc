//! A descriptor of this process for a child that works for it, which takes it when it has started:
//! inherited descriptors are closed then ([`super::respawn`]).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getppid, pidfd_getfd, pidfd_open};
use serde::{Deserialize, Serialize};

/// A descriptor of the process that has started this one.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Lent {
    lender: i32,
    descriptor: RawFd,
}

impl Lent {
    /// Lends a descriptor. The lender keeps it open until it was taken.
    pub fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            lender: i32::try_from(process::id()).map_err(io::Error::other)?,
            descriptor: descriptor.as_raw_fd(),
        })
    }

    /// Duplicates the descriptor into this process.
    ///
    /// # Errors
    /// The lender has ended; or an error of pidfd_getfd(2).
    pub fn take(self) -> io::Result<OwnedFd> {
        let lender = Pid::from_raw(self.lender);
        let pidfd = pidfd_open(lender.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?;
        // The pid is the lender's as long as the lender is our parent.
        if getppid() != lender {
            return Err(io::ErrorKind::NotFound.into());
        }
        let own = pidfd_getfd(pidfd, self.descriptor, PidfdGetfdFlags::empty())?;
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn nothing_is_taken_of_who_is_no_parent() {
        let file = File::open("/proc/self/status").unwrap();
        let lent = Lent::of(file.as_fd()).unwrap();
        let error = lent.take().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
