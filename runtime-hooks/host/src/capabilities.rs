//! The capabilities(7) of processes that need few of root's. Each gives the others up before it
//! reads anything that is not ours, and while it has one thread: they are a thread's own.
//!
//! It stays root, whose files it can still write. All other processes of ours keep everything: runc
//! and CRIU need nearly all, and a process that traces a container's may do anything by that. NVML
//! loads the driver and makes its nodes, so a command that judges this machine keeps everything,
//! too.

use caps::errors::CapsError;
use caps::{CapSet, Capability, CapsHashSet};
use rustix::io::Errno;
use rustix::thread::set_no_new_privs;

/// What such a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Moves images, reads those of others, and talks with registries: `stasis-push`,
    /// `stasis-push-again`, `stasis-pull`, `stasis-newest`; the verbs `push`, `pull`, `inspect` and
    /// `verify` of the operator.
    Images,
    /// Brings a file system to disk: `stasis-sync`.
    Disk,
}

/// Why a process does not begin its work.
#[derive(Debug, thiserror::Error)]
pub enum StillPrivileged {
    /// The kernel refuses to take capabilities away.
    #[error("the process cannot give up the capabilities that it does not need")]
    Capabilities(#[from] CapsError),
    /// The kernel refuses `PR_SET_NO_NEW_PRIVS`.
    #[error("the process cannot give up getting new privileges")]
    NewPrivileges(#[from] Errno),
}

impl Work {
    /// Returns the capabilities that the work needs.
    fn needs(self) -> &'static [Capability] {
        match self {
            // Directories of images and credentials may be another user's, mode 0700, and have the
            // sticky bit; our pulls note in an image when it was used.
            Self::Images => &[Capability::CAP_DAC_OVERRIDE, Capability::CAP_FOWNER],
            Self::Disk => &[],
        }
    }

    /// Gives up all other capabilities of this thread, and of every thread and program that it
    /// starts. Capabilities that it does not have are no error.
    ///
    /// # Errors
    /// The process has more than the work needs, and must not begin.
    pub fn give_up_others(self) -> Result<(), StillPrivileged> {
        let needs: CapsHashSet = self.needs().iter().copied().collect();
        // The bounding set is closed to a process without this one. It gets nothing back even so:
        // no program that it starts has more than it has itself.
        if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
            for other in caps::read(None, CapSet::Bounding)?.difference(&needs) {
                caps::drop(None, CapSet::Bounding, *other)?;
            }
        }
        caps::clear(None, CapSet::Ambient)?;
        caps::clear(None, CapSet::Inheritable)?;
        let permitted = caps::read(None, CapSet::Permitted)?;
        let left = permitted.intersection(&needs).copied().collect();
        for set in [CapSet::Effective, CapSet::Permitted] {
            caps::set(None, set, &left)?;
        }
        Ok(set_no_new_privs(true)?)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use stasis_linux::procfs::Status;

    use super::*;

    const NONE: &str = "0000000000000000";
    const OF_FILES: &str = "000000000000000a";

    /// The sets of this thread.
    fn sets() -> [String; 6] {
        let [process, thread] = [rustix::process::getpid(), rustix::thread::gettid()];
        let status = Status::of_thread(process.as_raw_pid(), thread.as_raw_pid());
        let status = status.unwrap().unwrap();
        let fields = [
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
        ];
        fields.map(|name| String::from_utf8(status.field(name).unwrap().to_vec()).unwrap())
    }

    /// Has a thread of its own do it, as its sets do not come back.
    fn apart(test: impl FnOnce() + Send + 'static) {
        thread::spawn(test).join().unwrap();
    }

    #[test]
    fn nothing_is_left_but_what_the_work_needs() {
        for (work, left) in [(Work::Images, OF_FILES), (Work::Disk, NONE)] {
            apart(move || {
                work.give_up_others().unwrap();
                assert_eq!(sets(), [NONE, left, left, left, NONE, "1"], "{work:?}");
                thread::scope(|scope| {
                    let started = scope.spawn(sets).join().unwrap();
                    assert_eq!(started, sets(), "{work:?}");
                });
            });
        }
    }

    #[test]
    fn a_process_that_has_less_goes_on_and_gets_nothing_back() {
        apart(|| {
            let given = [Capability::CAP_FOWNER].into_iter().collect();
            for set in [CapSet::Effective, CapSet::Permitted] {
                caps::set(None, set, &given).unwrap();
            }
            let [.., bounding, _, _] = sets();
            Work::Images.give_up_others().unwrap();
            let left = "0000000000000008";
            assert_eq!(sets(), [NONE, left, left, &bounding, NONE, "1"]);
            let mut program = Command::new("grep");
            let program = program.args(["CapEff", "/proc/self/status"]);
            let shown = String::from_utf8(program.output().unwrap().stdout).unwrap();
            assert_eq!(shown, format!("CapEff:\t{left}\n"));
        });
    }
}
