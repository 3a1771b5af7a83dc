//! Threads of programs that are traced.

use std::fs;

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Begins to trace all threads of a process, and with neither fork nor vfork among the options none
/// of its children.
pub(super) fn seize(process: Pid, options: Options) -> Result<()> {
    let options = options
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC;
    for entry in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = Pid::from_raw(entry?.file_name().to_string_lossy().parse()?);
        ptrace::seize(thread, options)?;
        // Once stopped, the thread is resumed from call to call.
        ptrace::interrupt(thread)?;
    }
    Ok(())
}

/// Makes a thread's finished call fail.
pub(super) fn fail(thread: Pid, error: Errno) {
    if let Ok(mut registers) = ptrace::getregs(thread) {
        registers.rax = (-i64::from(error as i32)).cast_unsigned();
        let _ = ptrace::setregs(thread, registers);
    }
}

/// Resumes a thread up to the next call; a thread that was killed meanwhile goes to its end.
pub(super) fn go_on(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::syscall(thread, signal);
}
