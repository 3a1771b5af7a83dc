//! Cancels an operation on a signal.
//!
//! A signal must not end our process between a lock and its unlock. So the handler sets a flag, and
//! the operation rolls back at the next step boundary: a driver call or a dump that has begun is
//! never interrupted. The death of the caller is such a signal, since only the caller wanted the
//! operation.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Whether a signal has requested cancellation.
#[derive(Debug, Clone)]
pub struct Cancel {
    requested: Arc<AtomicBool>,
    death_signal: Option<Signal>,
}

impl Cancel {
    /// Handles the usual signals by setting the flag. If the caller has set a parent-death signal,
    /// changes it to SIGTERM: go-runc and our shim start runtimes with SIGKILL.
    ///
    /// # Errors
    /// An error of sigaction(2) or prctl(2).
    pub fn on_signals() -> io::Result<Self> {
        let requested = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::clone(&requested))?;
        }
        let death_signal = prctl::get_pdeathsig()?;
        prctl::set_pdeathsig(death_signal.map(|_| Signal::SIGTERM))?;
        Ok(Self {
            requested,
            death_signal,
        })
    }

    /// For commands that change nothing: signals end this process as usual.
    #[must_use]
    pub fn not_needed() -> Self {
        Self {
            requested: Arc::default(),
            death_signal: None,
        }
    }

    /// Whether a signal has come.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Restores the parent-death signal for the program that replaces us by exec(2), which resets
    /// the handlers by itself.
    ///
    /// # Errors
    /// The error of prctl(2), or that a signal or the parent's death has requested cancellation:
    /// the new program would never learn of it.
    pub fn before_exec(&self) -> io::Result<()> {
        prctl::set_pdeathsig(self.death_signal)?;
        if self.requested() {
            let reason = "a signal asked for it to end";
            return Err(io::Error::new(io::ErrorKind::Interrupted, reason));
        }
        Ok(())
    }
}
