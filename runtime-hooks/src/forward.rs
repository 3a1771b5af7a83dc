//! Signals for an attached container, handed on to the low-level runtime that runs it.

use std::process::Child;
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::{Handle, Signals};

/// Signals are handed on as long as this lives.
#[derive(Debug)]
pub(crate) struct Forward {
    running: Option<(Handle, JoinHandle<()>)>,
}

impl Forward {
    /// Hands the usual signals on to a child, which must not be waited for to its end while this
    /// lives elsewhere: its pid must stay its own.
    pub(crate) fn signals_to(child: &Child) -> Self {
        let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH]);
        let pid = i32::try_from(child.id()).map(Pid::from_raw);
        let (Ok(mut signals), Ok(pid)) = (signals, pid) else {
            return Self { running: None };
        };
        let handle = signals.handle();
        let thread = thread::spawn(move || {
            for signal in signals.forever() {
                if let Ok(signal) = Signal::try_from(signal) {
                    let _ = kill(pid, signal);
                }
            }
        });
        Self {
            running: Some((handle, thread)),
        }
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.running.take() {
            handle.close();
            let _ = thread.join();
        }
    }
}
