//! Being asked to end in the middle of an operation.
//!
//! A signal must not end us between a lock and its unlock. It is noted, and the operation rolls
//! back at the next step boundary: a driver call or a dump that has begun is never cut off. The
//! death of the caller is such a signal: nobody else would end what only the caller wanted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

/// Whether a signal has asked for the end.
#[derive(Debug)]
pub struct Cancel {
    requested: Arc<AtomicBool>,
    death_signal: Option<Signal>,
}

impl Cancel {
    /// From now on the usual signals are noted instead of ending this process. A caller that
    /// wants us to die with it is taken at its word, but with SIGTERM: go-runc and our shim start
    /// runtimes with a parent-death signal of SIGKILL.
    ///
    /// # Errors
    /// What the kernel said.
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

    /// For what changes nothing: signals end this process as usual.
    #[must_use]
    pub fn not_needed() -> Self {
        Self {
            requested: Arc::default(),
            death_signal: None,
        }
    }

    /// Whether the end was asked for.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Gives the parent-death signal back to what takes our place by exec(2), which resets the
    /// handlers by itself.
    ///
    /// # Errors
    /// What the kernel said, or that the end was asked for: what takes our place would never learn
    /// of it, neither of a signal nor of a parent that is dead already.
    pub fn stand_down(&self) -> io::Result<()> {
        prctl::set_pdeathsig(self.death_signal)?;
        if self.requested() {
            let reason = "a signal asked for it to end";
            return Err(io::Error::new(io::ErrorKind::Interrupted, reason));
        }
        Ok(())
    }
}
