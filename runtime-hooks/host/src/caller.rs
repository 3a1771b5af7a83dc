//! The process that has started this one, for the log of operations.

use std::env;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

use rustix::process::{getpid, getppid, getuid};
use serde::Serialize;
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::Membership;
use stasis_linux::escape::escaped;
use stasis_linux::procfs::login_user;

/// The most arguments and bytes of a command line that are kept. Callers' have some twenty
/// arguments, of which the paths of containerd are the longest.
const MOST_ARGUMENTS: usize = 40;
const MOST_BYTES: usize = 300;

/// The process that has started this one, and its command. Names from elsewhere are escaped.
#[derive(Debug, Serialize)]
pub struct Caller {
    /// The parent process.
    pid: Option<i32>,
    /// Its command name.
    name: Option<String>,
    /// Our user.
    uid: u32,
    /// The user who has logged in; `None` for a service.
    loginuid: Option<u32>,
    /// The caller's cgroup, which is ours.
    cgroup: Option<String>,
    /// Our command line.
    argv: Vec<String>,
}

/// Reads the caller of this process, before it may be gone.
pub fn remember() {
    Caller::of_this_process();
}

impl Caller {
    /// Returns the caller of this process, as it was at the first call: before the end of an
    /// operation it may be gone, and its children have another parent then.
    pub fn of_this_process() -> &'static Self {
        static CALLER: OnceLock<Caller> = OnceLock::new();
        CALLER.get_or_init(Self::now)
    }

    fn now() -> Self {
        let own = getpid().as_raw_pid();
        let parent = getppid().map(|parent| parent.as_raw_pid());
        let process = parent.and_then(|parent| ProcessRef::open(parent).ok().flatten());
        let membership = Membership::of(own).ok().flatten();
        let cgroup = membership.as_ref().and_then(Membership::deepest);
        Self {
            pid: parent,
            name: process.map(|process| process.name().to_owned()),
            uid: getuid().as_raw(),
            loginuid: login_user(own).ok().flatten(),
            cgroup: cgroup.map(|path| shown(path.as_os_str().as_bytes())),
            argv: arguments(env::args_os().map(OsStringExt::into_vec)),
        }
    }
}

fn arguments(all: impl Iterator<Item = Vec<u8>>) -> Vec<String> {
    all.take(MOST_ARGUMENTS)
        .map(|argument| shown(&argument))
        .collect()
}

fn shown(bytes: &[u8]) -> String {
    escaped(&bytes[..bytes.len().min(MOST_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_who_called() {
        let caller = Caller::of_this_process();
        assert_eq!(caller.pid, getppid().map(|parent| parent.as_raw_pid()));
        assert!(
            caller.name.is_some() && caller.cgroup.is_some(),
            "{caller:?}"
        );
        assert_eq!(caller.uid, getuid().as_raw());
        assert_eq!(Some(&caller.argv[0]), env::args().next().as_ref());
    }

    #[test]
    fn a_command_line_is_bounded_and_acts_on_no_terminal() {
        let mut all = vec![b"a\n\x1b[2J".to_vec(), vec![b'x'; 1 << 20]];
        all.extend((0..1000).map(|_| b"more".to_vec()));
        let kept = arguments(all.into_iter());
        assert_eq!(kept[0], "a\\n\\u{1b}[2J");
        assert_eq!(kept[1].len(), MOST_BYTES);
        assert_eq!(kept.len(), MOST_ARGUMENTS);
    }
}
