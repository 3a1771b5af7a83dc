//! A tracer of a container's process: a debugger, or the like.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use stasis_integration::host::installed::StasisHost;

/// Traces a process, and resumes it at each stop for the tracer. The tracing ends with the thread.
pub(crate) struct Debugger {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Debugger {
    /// Traces the process with this `pid` in the host.
    pub(crate) fn of(stasis: &StasisHost, pid: &str) -> Result<Self> {
        let pid = stasis.host.outside(pid)?;
        let goes_on = Arc::new(AtomicBool::new(true));
        let (seized, result) = mpsc::channel();
        let until = Arc::clone(&goes_on);
        let thread = thread::spawn(move || {
            let _ = seized.send(ptrace::seize(pid, ptrace::Options::empty()));
            while until.load(Ordering::SeqCst) {
                let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
                match waitpid(pid, Some(flags)) {
                    Ok(WaitStatus::Stopped(_, signal)) => drop(ptrace::cont(pid, signal)),
                    Ok(WaitStatus::PtraceEvent(..)) => drop(ptrace::cont(pid, None)),
                    _ => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        result.recv()??;
        let thread = Some(thread);
        Ok(Self { goes_on, thread })
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
