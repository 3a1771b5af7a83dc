//! Processes that execute code in the memory of another, and files that reach it without a
//! descriptor.

use std::io::{Read, Seek};
use std::os::fd::AsFd;

use stasis_linux::procfs::waiting;

use super::program::Program;
use super::*;
use crate::{
    Life, Numbered, Proxy, SCRATCH_BYTES, Shared, Start, Worker, memory, reap, wait_until_outside,
};

/// `loop: lock incq (%rdi); cmpq $0, 8(%rdi); je loop; mov $60, %eax; xor %edi, %edi; syscall`:
/// counts in its argument until the number behind that is set, and then ends.
const COUNTING: [u8; 20] = [
    0xf0, 0x48, 0xff, 0x07, 0x48, 0x83, 0x7f, 0x08, 0x00, 0x74, 0xf5, 0xb8, 0x3c, 0, 0, 0, 0x31,
    0xff, 0x0f, 0x05,
];
/// `ud2`.
const WRONG: [u8; 2] = [0x0f, 0x0b];
/// In the page behind the code.
const COUNT: u64 = 4096;
const QUIT: u64 = COUNT + 8;
const LISTED: u64 = COUNT + 16;
const ALIVE: u64 = COUNT + 24;
const STACK: u64 = COUNT + 4096;

/// A process with code in its memory, and the number of its mappings before that.
struct Owner {
    child: Child,
    code: u64,
    maps: usize,
}

impl Owner {
    fn with(code: &[u8]) -> Self {
        let child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        until(|| is_asleep(&child));
        let maps = maps(&child);
        let mut proxy = Proxy::of_running(pid(&child), Shared::Memory, || false).unwrap();
        let place = [0, 8192, 3, 0x22, u64::MAX, 0];
        let place = proxy.call(libc::SYS_mmap, &place).unwrap();
        memory::write(pid(&child), place, code).unwrap();
        proxy.call(libc::SYS_mprotect, &[place, 4096, 5]).unwrap();
        proxy.end().unwrap();
        Self {
            child,
            code: place,
            maps,
        }
    }

    fn worker(&self) -> Worker {
        let mut proxy = Proxy::of_running(pid(&self.child), Shared::Memory, || false).unwrap();
        let numbered = Numbered {
            listed: self.code + LISTED,
            cleared_at_end: Some(self.code + ALIVE),
        };
        let mut worker = Worker::make(&mut proxy, numbered).unwrap();
        assert_eq!(self.number(ALIVE), self.number(LISTED));
        assert_ne!(self.number(ALIVE), 0);
        proxy.end().unwrap();
        worker
            .start(Start {
                code: self.code,
                stack: self.code + STACK,
                argument: self.code + COUNT,
            })
            .unwrap();
        worker
    }

    fn number(&self, offset: u64) -> u64 {
        memory::word(pid(&self.child), self.code + offset).unwrap()
    }

    fn goes_on(&self, worker: &mut Worker) {
        let before = self.number(COUNT);
        until(|| {
            assert_eq!(worker.look_after().unwrap(), Life::Goes);
            self.number(COUNT) > before
        });
    }

    /// Asserts that nothing of ours is left in the owner, and that it does its work.
    fn assert_unharmed(mut self) {
        let listed = i32::try_from(self.number(LISTED)).unwrap();
        reap(pid(&self.child), &[0, listed, listed], || false).unwrap();
        assert_eq!(super::proxies::zombies_of(&self.child), "");
        let mut proxy = Proxy::of_running(pid(&self.child), Shared::Memory, || false).unwrap();
        proxy.call(libc::SYS_munmap, &[self.code, 8192]).unwrap();
        proxy.end().unwrap();
        assert_eq!(maps(&self.child), self.maps);
        self.child
            .stdin
            .take()
            .unwrap()
            .write_all(b"whole")
            .unwrap();
        assert_eq!(self.child.wait_with_output().unwrap().stdout, b"whole");
    }
}

fn maps(child: &Child) -> usize {
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
    maps.lines().count()
}

#[test]
fn a_worker_runs_beside_its_owner_until_it_is_told_to_end() {
    let owner = Owner::with(&COUNTING);
    let mut worker = owner.worker();
    owner.goes_on(&mut worker);
    // The signals that the whole process group of a container may get.
    for signal in [Signal::SIGSTOP, Signal::SIGTERM, Signal::SIGCONT] {
        kill(Pid::from_raw(worker.pid()), signal).unwrap();
        owner.goes_on(&mut worker);
    }
    memory::write(pid(&owner.child), owner.code + QUIT, &[1; 8]).unwrap();
    worker.wait().unwrap();
    assert_eq!(owner.number(ALIVE) & u64::from(u32::MAX), 0);
    owner.assert_unharmed();
}

#[test]
fn a_worker_that_is_killed_is_known_to_have_ended() {
    let owner = Owner::with(&COUNTING);
    let mut worker = owner.worker();
    owner.goes_on(&mut worker);
    kill(Pid::from_raw(worker.pid()), Signal::SIGKILL).unwrap();
    until(|| worker.look_after().unwrap() == Life::Ended);
    assert_eq!(owner.number(ALIVE) & u64::from(u32::MAX), 0);
    owner.assert_unharmed();
}

#[test]
fn a_worker_that_does_what_cannot_be_done_is_ended() {
    let owner = Owner::with(&WRONG);
    let mut worker = owner.worker();
    until(|| worker.look_after().unwrap() == Life::Ended);
    owner.assert_unharmed();
}

/// As if our process were killed.
#[test]
fn a_worker_dies_with_whoever_made_it() {
    let owner = Owner::with(&COUNTING);
    std::thread::scope(|scope| {
        scope
            .spawn(|| std::mem::forget(owner.worker()))
            .join()
            .unwrap();
    });
    until(|| owner.number(ALIVE) & u64::from(u32::MAX) == 0);
    owner.assert_unharmed();
}

#[test]
fn a_proxy_is_listed() {
    let owner = Owner::with(&COUNTING);
    let numbered = Numbered {
        listed: owner.code + LISTED,
        cleared_at_end: None,
    };
    let proxy = Proxy::numbered(pid(&owner.child), numbered, || false).unwrap();
    let listed = owner.number(LISTED);
    assert_eq!(i32::try_from(listed), Ok(proxy.pid()));
    proxy.end().unwrap();
    owner.assert_unharmed();
}

#[test]
fn a_file_is_received_and_mapped_without_a_descriptor_of_the_owner() {
    let owner = Owner::with(&COUNTING);
    let descriptors = || {
        let open = fs::read_dir(format!("/proc/{}/fd", owner.child.id())).unwrap();
        open.count()
    };
    let before = descriptors();
    let mut file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let mut proxy = Proxy::of_running(pid(&owner.child), Shared::Memory, || false).unwrap();
    const { assert!(SCRATCH_BYTES <= 4096) };
    let scratch = owner.code + COUNT;
    let inside = proxy.receive(file.as_fd(), scratch).unwrap();
    let place = [0, 4096, 3, 1, inside, 0];
    let place = proxy.call(libc::SYS_mmap, &place).unwrap();
    assert_eq!(descriptors(), before);
    memory::write(pid(&owner.child), place, b"contents").unwrap();
    proxy.call(libc::SYS_munmap, &[place, 4096]).unwrap();
    memory::write(pid(&owner.child), scratch, &[0; 128]).unwrap();
    proxy.end().unwrap();
    let mut contents = [0; 8];
    file.rewind().unwrap();
    file.read_exact(&mut contents).unwrap();
    assert_eq!(&contents, b"contents");
    owner.assert_unharmed();
}

/// A thread that waits in the kernel, and one that runs.
#[test]
fn a_thread_is_seen_in_the_code_that_it_executes() {
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let runner = Program::counting(include_str!("filtered.c"), &[]);
    // The program may also sleep while it is being loaded.
    let its_sleep = format!("{} ", libc::SYS_clock_nanosleep);
    until(|| {
        let syscall = fs::read_to_string(format!("/proc/{}/syscall", sleeper.id())).unwrap();
        syscall.starts_with(&its_sleep)
    });
    let place = waiting(pid(&sleeper), pid(&sleeper)).unwrap();
    let instruction = place.unwrap().instruction;
    let look = |child, code| wait_until_outside(pid(child), &code, || false);
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    let seen = [
        look(&sleeper, instruction - 2..instruction + 1),
        look(&runner.child, 0..u64::MAX),
    ];
    let unseen = [
        look(&sleeper, instruction + 1..u64::MAX),
        look(&runner.child, 0..4096),
    ];
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(seen.map(kind), [io::ErrorKind::TimedOut; 2]);
    assert!(unseen.iter().all(Result::is_ok), "{unseen:?}");
}
