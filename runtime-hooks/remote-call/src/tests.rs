#![allow(clippy::unwrap_used)]

mod hostile;
mod killed;
mod program;
mod proxies;
mod sent;
mod workers;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::program::Program;
use super::event::{Deadline, Event, next_event};
use super::ffi::{RunTo, resume};
use super::seized::SeizedThread;

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

fn stop(child: &Child) -> io::Result<SeizedThread> {
    SeizedThread::stop(pid(child), || false)
}

/// The limit is for what never comes: a busy machine may need seconds for anything.
fn until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "not within 60 s");
        sleep(Duration::from_millis(1));
    }
}

fn is_asleep(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let wchan = fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap();
    stat.contains(") S ") && !wchan.starts_with("running")
}

/// Every kind of interrupted call: one that the kernel keeps the rest of (sleep), and one that it
/// makes again (read).
#[test]
fn a_thread_makes_calls_and_then_finishes_what_it_was_doing() {
    // It outlives its rounds.
    let mut sleeper = Command::new("sleep").arg("10").spawn().unwrap();
    let mut reader = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for (child, rounds) in [(&sleeper, 5), (&reader, 20)] {
        until(|| is_asleep(child));
        for _ in 0..rounds {
            let mut thread = stop(child).unwrap();
            let pid = thread.call(libc::SYS_getpid, &[]).unwrap();
            assert_eq!(pid, u64::from(child.id()));
            let error = thread.call(libc::SYS_close, &[4711]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        }
    }
    assert!(sleeper.wait().unwrap().success());
    reader
        .stdin
        .take()
        .unwrap()
        .write_all(b"still here")
        .unwrap();
    let output = reader.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"still here");
    assert!(output.status.success());
}

#[test]
fn signals_that_come_meanwhile_are_delivered() {
    let script =
        "n=0; trap 'n=$((n + 1))' USR1; echo up; while [ $n -lt 300 ]; do :; done; echo $n";
    let mut child = Command::new("bash")
        .args(["-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let process = Pid::from_raw(pid(&child));
    let mut calls = 0;
    // Some come before the thread stops, some while it is about to make the call.
    while matches!(child.try_wait(), Ok(None)) {
        let _ = kill(process, Signal::SIGUSR1);
        if let Ok(mut thread) = stop(&child) {
            let _ = kill(process, Signal::SIGUSR1);
            if let Ok(pid) = thread.call(libc::SYS_getpid, &[]) {
                assert_eq!(pid, u64::from(child.id()));
                calls += 1;
            }
        }
    }
    let _ = child.wait();
    line.clear();
    output.read_line(&mut line).unwrap();
    // More may come between the end of the loop and the line.
    let counted: u32 = line.trim().parse().unwrap();
    assert!(counted >= 300, "{counted}: it was not hurt");
    assert!(calls > 50, "{calls}");
}

#[test]
fn a_stopped_process_stays_stopped() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = Pid::from_raw(pid(&child));
    kill(pid, Signal::SIGSTOP).unwrap();
    let is_stopped = || {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap()
            .contains(") T ")
    };
    until(is_stopped);
    let mut thread = stop(&child).unwrap();
    thread.call(libc::SYS_getpid, &[]).unwrap();
    drop(thread);
    until(is_stopped);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn one_that_ended_is_an_error() {
    let mut child = Command::new("sleep")
        .arg("60")
        .stdin(File::open("/dev/null").unwrap())
        .spawn()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(stop(&child).is_err());
}

/// The kernel reports its end once all other threads have ended as well, and these may wait for the
/// tracer: the last one of a pid namespace's init does, if a child of it is traced.
#[test]
fn a_leader_that_ended_before_other_threads_has_ended() {
    let source = include_str!("tests/leaderless.c");
    let program = Program::waiting(source, |_| Vec::<&str>::new());
    let leader = Pid::from_raw(pid(&program.child));
    ptrace::seize(leader, Options::empty()).unwrap();
    kill(leader, Signal::SIGUSR1).unwrap();
    let told = next_event(leader, Deadline::soon()).unwrap();
    assert_eq!(told, Event::Signal(libc::SIGUSR1));
    resume(leader, RunTo::Event, libc::SIGUSR1).unwrap();
    let ended = next_event(leader, Deadline::soon()).unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::NotFound);
}
