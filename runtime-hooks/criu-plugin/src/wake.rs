//! Less waiting for the freezer.
//!
//! CRIU tells the freezer to hold the tree, and sleeps 100 ms before it looks whether that is done, and 100 ms more each time that it is
//! not (criu/seize.c, `freeze_processes`). Mostly it is done within one. A signal ends such a sleep, and CRIU looks at once; but it looks
//! only so often altogether (as often as 100 ms fit into its timeout, 10 s). So it gets a few signals, each after twice the time.

#![allow(unsafe_code)] // FFI: sigaction(2)

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;

/// CRIU has no use for it, and it does nothing to a program without a handler.
const SIGNAL: Signal = Signal::SIGURG;
const AFTER_MS: [u64; 6] = [2, 4, 8, 16, 32, 64];

/// Signals to come; none any more once it is dropped.
#[derive(Debug)]
pub(crate) struct Wakes {
    _timers: Vec<Timer>,
}

// SAFETY: a timer is the process's, and not of the thread that made it (timer_create(2)).
unsafe impl Send for Wakes {}

impl Wakes {
    /// Starts them, for this thread.
    ///
    /// # Errors
    /// What the kernel said.
    pub(crate) fn start() -> Result<Self, Errno> {
        // System calls other than sleeps go on by themselves.
        let handler = SigHandler::Handler(nothing);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler does nothing.
        unsafe { sigaction(SIGNAL, &action) }?;
        let timer = |after: &u64| {
            let notify = SigevNotify::SigevThreadId {
                signal: SIGNAL,
                thread_id: gettid().as_raw(),
                si_value: 0,
            };
            let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?;
            let expiration = Expiration::OneShot(Duration::from_millis(*after).into());
            timer.set(expiration, TimerSetTimeFlags::empty())?;
            Ok(timer)
        };
        let timers: Result<_, Errno> = AFTER_MS.iter().map(timer).collect();
        Ok(Self { _timers: timers? })
    }
}

extern "C" fn nothing(_signal: i32) {}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::time::TimeSpec;
    use nix::time::{ClockNanosleepFlags, clock_nanosleep};

    fn sleep() -> Result<TimeSpec, Errno> {
        let long = Duration::from_millis(300).into();
        let (clock, flags) = (ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::empty());
        clock_nanosleep(clock, flags, &long)
    }

    #[test]
    fn so_many_sleeps_end_early_and_no_more() {
        let wakes = Wakes::start().unwrap();
        for _ in AFTER_MS {
            assert_eq!(sleep(), Err(Errno::EINTR));
        }
        assert!(sleep().is_ok());
        drop(wakes);
        drop(Wakes::start().unwrap());
        assert!(sleep().is_ok(), "one came after it was dropped");
    }
}
