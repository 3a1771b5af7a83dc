//! The state of a program after we are killed at any step of our work on it.
//!
//! The calls come from a process of its own (`a_tracer`), which is traced in turn: it is killed
//! before and after each system call with which it acts on the program.

use std::os::unix::process::ExitStatusExt;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::program::Program;
use super::*;
use crate::registers::Registers;
use crate::{Proxy, Shared, memory};

/// The calls that act on another process.
const ACTING: [i64; 4] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_pwrite64,
    libc::SYS_kill,
];
/// Requests of ptrace(2) that change nothing: PTRACE_GETREGS, GETEVENTMSG, GETSIGINFO, GETREGSET,
/// GETSIGMASK, GET_SYSCALL_INFO, GET_RSEQ_CONFIGURATION.
const READING: [u64; 7] = [12, 0x4201, 0x4202, 0x4204, 0x420a, 0x420e, 0x420f];
/// Printed in front of the number of the tracer's thread.
const READY: &str = "traces from ";

/// Not a test: the process that the tests here start. It reads from a line of which process to make
/// a proxy, makes one, and ends it.
#[test]
#[ignore = "started by other tests"]
fn a_tracer() {
    let Some(told) = lines_of_a_tracer() else {
        return;
    };
    let pid = i32::try_from(told[0]).unwrap();
    let mut proxy = Proxy::of_running(pid, Shared::Memory, || false).unwrap();
    assert!(proxy.call(libc::SYS_getpid, &[]).is_ok());
    proxy.end().unwrap();
}

/// Prints that this process can be traced, and reads its numbers from the next line.
pub(super) fn lines_of_a_tracer() -> Option<Vec<u64>> {
    println!("\n{READY}{}", nix::unistd::gettid());
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let numbers = line.split_whitespace().map(|number| number.parse().ok());
    numbers
        .collect::<Option<Vec<u64>>>()
        .filter(|all| !all.is_empty())
}

/// Whether a tracer came to the step at which it was to be killed.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    ToThat,
    ToTheEnd,
}

/// Kills a tracer of that program before (even) or after (odd) one of its acts, once `meanwhile`
/// has been done.
fn kill_at(step: usize, program: &Child, meanwhile: impl FnOnce()) -> Came {
    let told = program.id().to_string();
    kill_one_at("tests::killed::a_tracer", &told, step, meanwhile)
}

/// Does the same with a process that runs `test`, and gets the line `told`.
fn kill_one_at(test: &str, told: &str, step: usize, meanwhile: impl FnOnce()) -> Came {
    let mut tracer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored"])
        .arg("--nocapture")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(tracer.stdout.take().unwrap()).lines();
    let mut ready = lines.map_while(Result::ok);
    let thread = ready.find_map(|line| line.strip_prefix(READY)?.parse().ok());
    let thread = Pid::from_raw(thread.unwrap());
    ptrace::seize(thread, Options::PTRACE_O_TRACESYSGOOD).unwrap();
    ptrace::interrupt(thread).unwrap();
    let mut input = tracer.stdin.take().unwrap();
    writeln!(input, "{told}").unwrap();
    let came = run_to(step, thread);
    meanwhile();
    tracer.kill().unwrap();
    // We have to wait for its thread until that has ended, and then for the process.
    while matches!(waitpid(thread, Some(WaitPidFlag::__WALL)), Ok(status) if !has_ended(status)) {}
    tracer.wait().unwrap();
    came
}

fn run_to(step: usize, thread: Pid) -> Came {
    let mut steps = 0;
    loop {
        let status = waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        if has_ended(status) {
            return Came::ToTheEnd;
        }
        let is_at_call = matches!(status, WaitStatus::PtraceSyscall(_));
        if is_at_call && acts(ptrace::getregs(thread).unwrap()) {
            if steps == step {
                return Came::ToThat;
            }
            steps += 1;
        }
        let signal = match status {
            WaitStatus::Stopped(_, signal) => signal as i32,
            _ => 0,
        };
        resume(thread, RunTo::Syscall, signal).unwrap();
    }
}

fn acts(registers: libc::user_regs_struct) -> bool {
    let number = registers.orig_rax.cast_signed();
    let is_reading = number == libc::SYS_ptrace && READING.contains(&registers.rdi);
    ACTING.contains(&number) && !is_reading
}

fn has_ended(status: WaitStatus) -> bool {
    matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..))
}

/// Returns at how many steps a tracer was killed, up to one that it does not come to.
fn kill_at_all(program: &mut Program, check: impl FnMut(&mut Program, usize)) -> usize {
    let told = program.child.id().to_string();
    kill_at_all_as("tests::killed::a_tracer", &told, program, check)
}

pub(super) fn kill_at_all_as(
    test: &str,
    told: &str,
    program: &mut Program,
    mut check: impl FnMut(&mut Program, usize),
) -> usize {
    for step in 0.. {
        if kill_one_at(test, told, step, || ()) == Came::ToTheEnd {
            return step;
        }
        check(program, step);
    }
    unreachable!()
}

/// The child processes of a program that have not ended.
fn living_children(of: &Child) -> Vec<i32> {
    let children = super::proxies::zombies_of(of);
    let children = children
        .split_whitespace()
        .map(|child| child.parse().unwrap());
    children
        .filter(|child| crate::status::is_alive(*child).unwrap())
        .collect()
}

fn assert_it_goes_on(mode: &str) {
    let mut program = Program::counting(include_str!("steadfast.c"), &[mode]);
    let steps = kill_at_all(&mut program, |program, step| {
        for _ in 0..2 {
            program.goes_on();
        }
        assert_eq!(program.number(1), 0, "{mode}, step {step}");
        until(|| living_children(&program.child).is_empty());
    });
    assert!(steps > 40, "{steps}");
    program.goes_on();
    assert_eq!(program.number(1), 0, "{mode}");
}

#[test]
fn a_computing_thread_goes_on_with_all_its_registers() {
    assert_it_goes_on("computes");
}

/// No matter which of its waits we interrupt.
#[test]
fn a_waiting_thread_is_not_interrupted() {
    assert_it_goes_on("waits");
}

/// The number that the sequence reads changes while the thread stands still.
#[test]
fn a_restartable_sequence_is_begun_again_by_itself() {
    let program = Program::counting(include_str!("sequence.c"), &[]);
    let stands_still = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", program.child.id())).unwrap();
        stat.contains(") t ")
    };
    for step in 0.. {
        let change = || {
            if stands_still() {
                program.set_number(1, step as u64 + 1);
            }
        };
        if kill_at(step, &program.child, change) == Came::ToTheEnd {
            break;
        }
        program.goes_on();
        assert_eq!(program.number(2), 0, "step {step}");
    }
}

/// Programs may use this memory, for whatever they do with their stacks.
#[test]
fn what_is_below_the_stack_pointer_is_put_back() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    until(|| is_asleep(&child));
    let mut thread = stop(&child).unwrap();
    assert!(thread.borrow().unwrap().child_frame().is_some());
    let registers = Registers::read(thread.thread()).unwrap();
    let below = registers.stack_pointer() - 16384;
    let bytes: Vec<u8> = (0..16384_u32).map(|index| (index % 251) as u8).collect();
    memory::write(pid(&child), below, &bytes).unwrap();
    thread.call(libc::SYS_getpid, &[]).unwrap();
    let mut found = vec![0; bytes.len()];
    memory::read(pid(&child), below, &mut found).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found == bytes);
}

/// Without room for frames, a thread with our registers can only die.
#[test]
fn a_thread_without_a_way_back_ends_or_goes_on_but_is_never_wrong() {
    for mode in ["deep", "handles"] {
        let start = || Program::counting(include_str!("steadfast.c"), &[mode]);
        let (mut program, mut ended) = (start(), 0);
        let steps = kill_at_all(&mut program, |program, step| {
            let before = program.number(0);
            let mut status = None;
            until(|| {
                status = program.child.try_wait().unwrap();
                status.is_some() || program.number(0) > before + 1
            });
            assert_eq!(program.number(1), 0, "{mode}, step {step}");
            if let Some(status) = status {
                assert_eq!(status.signal(), Some(libc::SIGSEGV));
                ended += 1;
                *program = start();
            }
        });
        assert!(0 < ended && ended < steps, "{ended} of {steps}");
    }
}
