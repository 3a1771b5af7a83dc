//! Processes that would turn calls against us, or that calls could harm.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

use super::program::Program;
use super::*;
use crate::calls::Calls;
use crate::gate::gate;
use crate::registers::{Gate, Registers};

#[test]
fn a_filtered_thread_gets_nothing_through() {
    let program = Program::counting(include_str!("filtered.c"), &[]);
    for round in 0..200 {
        let mut thread = stop(&program.child).unwrap();
        // We may make calls that the filter forbids the program.
        assert!(thread.call(libc::SYS_getppid, &[]).is_ok());
        drop(thread);
        program.goes_on();
        assert_eq!(program.number(1), 0, "in round {round}");
    }
}

#[test]
fn a_file_that_is_called_vdso_is_none() {
    let mut program = Program::waiting(include_str!("disguised.c"), |directory| {
        let names: [&[u8]; 2] = [b"[vdso]", b"\xff\xfe [vdso]"];
        names
            .map(|name| {
                let path = directory.path().join(std::ffi::OsStr::from_bytes(name));
                File::create(&path).unwrap().set_len(1 << 30).unwrap();
                path
            })
            .into()
    });
    let expected = u64::from(program.child.id());
    let called = stop(&program.child).unwrap().call(libc::SYS_getpid, &[]);
    assert_eq!(called.unwrap(), expected);
    assert_eq!(program.child.try_wait().unwrap(), None);
}

/// A call ends however many signals come, and the thread then handles them and gets on. How long
/// that takes is the scheduler's: a call that takes too long fails by itself.
#[test]
fn a_flood_of_signals_does_not_keep_a_call_from_ending() {
    for arguments in [[].as_slice(), &["stop"]] {
        let program = Program::counting(include_str!("flooded.c"), arguments);
        let expected = u64::from(program.child.id());
        for round in 0..20 {
            let handled = program.number(1);
            let called = stop(&program.child).unwrap().call(libc::SYS_getpid, &[]);
            assert_eq!(called.unwrap(), expected, "in round {round}");
            program.goes_on();
            until(|| program.number(1) > handled);
        }
    }
}

#[test]
fn a_restartable_sequence_is_begun_again() {
    let program = Program::counting(include_str!("sequence.c"), &[]);
    for round in 1..200 {
        let mut thread = stop(&program.child).unwrap();
        program.set_number(1, round);
        thread.call(libc::SYS_getpid, &[]).unwrap();
        drop(thread);
        program.goes_on();
        assert_eq!(program.number(2), 0, "in round {round}");
    }
}

/// If our process is killed in the middle of a call, the kernel resumes the thread as it is, also
/// when only our tracing thread ends.
#[test]
fn a_thread_with_our_registers_does_not_run_on() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    until(|| is_asleep(&child));
    let traced = pid(&child);
    std::thread::spawn(move || {
        let thread = SeizedThread::stop(traced, || false).unwrap();
        let registers = Registers::read(thread.thread()).unwrap();
        let calling = registers.calling(gate(traced).unwrap(), libc::SYS_getpid, &[]);
        calling.write(thread.thread()).unwrap();
        std::mem::forget(thread);
    })
    .join()
    .unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSEGV));
}

/// Another thread has exchanged the instruction: the thread does not make the call that it finds.
#[test]
fn a_call_that_is_not_ours_is_not_made() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    until(|| is_asleep(&child));
    let mut thread = stop(&child).unwrap();
    let real = gate(pid(&child)).unwrap();
    let options = nix::sys::ptrace::Options::PTRACE_O_TRACESYSGOOD;
    // `mov $SYS_exit_group, %eax` in front of the next `syscall`, in memory of its own.
    let place = thread
        .call(libc::SYS_mmap, &[0, 4096, 7, 0x22, u64::MAX, 0])
        .unwrap();
    let memory = File::options()
        .write(true)
        .open(format!("/proc/{}/mem", child.id()))
        .unwrap();
    let code = [0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05];
    std::os::unix::fs::FileExt::write_all_at(&memory, &code, place).unwrap();
    let gate_there = Gate {
        instruction: place,
        stack: 0,
    };
    let mut calls = Calls::new(thread.thread(), gate_there, options);
    let found = Registers::read(thread.thread()).unwrap();
    let error = calls.call(libc::SYS_getpid, &[]).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    found.write(thread.thread()).unwrap();
    assert_ne!(real.instruction, place);
    assert!(thread.call(libc::SYS_getpid, &[]).is_ok());
    drop(thread);
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}
