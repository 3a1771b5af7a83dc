use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::cuda::job::tests::FakeDriver;

/// Names of three-byte letters that the kernel cuts after 15 bytes (prctl(2) `PR_SET_NAME`), and
/// one in Latin-1: as a command name, and as that of a mapped file, the program itself.
const NAMES: [&[u8]; 2] = ["a训练程序主进程".as_bytes(), b"mod\xe8le"];

struct OddlyNamed {
    child: Child,
    _directory: tempfile::TempDir,
}

impl OddlyNamed {
    fn start(name: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(OsStr::from_bytes(name));
        // If a descriptor of ours could write to it, other children would have it for a moment, and
        // execve(2) refuse the program (ETXTBSY).
        let copied = Command::new("cp").arg("/bin/cat").arg(&program).status();
        assert!(copied.unwrap().success());
        let mut command = Command::new(program);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // spawn(3) returns before execve(2) has set the name; a program that answers has its name.
        child.stdin.as_mut().unwrap().write_all(b"?").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self {
            child,
            _directory: directory,
        }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }
}

impl Drop for OddlyNamed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_process_whose_name_is_not_utf_8_is_found_and_brought_back() {
    for name in NAMES {
        let odd = OddlyNamed::start(name);
        let driver = FakeDriver::default();
        driver.set(odd.pid(), CudaState::Checkpointed);
        let open = || ProcessRef::open(odd.pid()).unwrap().unwrap();
        let members = query_states(&driver, vec![open()]).unwrap();
        assert_eq!(members.len(), 1);
        assert_eq!(members[0].1, CudaState::Checkpointed);
        assert!(!open().may_use_cuda().unwrap());
        assert!(bring_back(&driver, &[open()], &InitialState::default()).is_empty());
        assert!(driver.all_are(CudaState::Running));
    }
}

#[test]
fn a_thread_whose_name_is_not_utf_8_is_looked_at() {
    let (named, is_named) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            fs::write("/proc/thread-self/comm", &NAMES[0][..15]).unwrap();
            named.send(()).unwrap();
            let _ = ends.recv();
        });
        is_named.recv().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Stop::of(own).unwrap(), None);
        drop(end);
    });
}
