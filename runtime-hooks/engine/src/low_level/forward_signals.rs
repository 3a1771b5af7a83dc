//! Signals for an attached container, handed on to the low-level runtime that runs it.

use std::io;
use std::process::Child;
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

/// Signals that are kept until the child runs that gets them.
#[derive(Debug)]
pub(crate) struct QueuedSignals(SignalsInfo<WithOrigin>);

/// Signals are handed on as long as this lives.
#[derive(Debug)]
pub(crate) struct Forward {
    running: Option<(Handle, JoinHandle<()>)>,
}

impl QueuedSignals {
    /// Keeps signals from now on: one that arrives while the child is started must not be lost.
    pub(crate) fn from_now() -> io::Result<Self> {
        let signals = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH];
        SignalsInfo::new(signals).map(Self)
    }

    /// Forwards them to a child. Do not wait(2) for the child before the returned value is dropped:
    /// its pid could then be another process's.
    pub(crate) fn forward_to(self, child: &Child) -> Forward {
        let Self(mut signals) = self;
        let Ok(pid) = i32::try_from(child.id()).map(Pid::from_raw) else {
            return Forward { running: None };
        };
        let handle = signals.handle();
        let thread = thread::spawn(move || {
            for origin in signals.forever().filter(|origin| !is_for_all(origin.cause)) {
                if let Ok(signal) = Signal::try_from(origin.signal) {
                    let _ = kill(pid, signal);
                }
            }
        });
        Forward {
            running: Some((handle, thread)),
        }
    }
}

/// Whether the kernel sent it, for a key or a change of the terminal: then every process of the
/// foreground group has it, the child too (kernel, drivers/tty/n_tty.c `isig`).
fn is_for_all(cause: Cause) -> bool {
    matches!(cause, Cause::Kernel)
}

impl Drop for Forward {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.running.take() {
            handle.close();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
