//! Less waiting for the freezer.
//!
//! CRIU freezes the cgroup of the tree, and sleeps 100 ms each time before it checks whether the
//! tree is frozen (`freeze_processes` in criu/seize.c). Mostly that takes 1 ms. A signal ends such
//! a sleep, so CRIU checks at once; but it checks no more often than 100 ms fit into its timeout of
//! 10 s. So it gets only a few signals, each after twice the time.

#![allow(unsafe_code)] // FFI: sigaction(2)

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{
    SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction,
};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;

/// CRIU does not use it, and it is ignored by default.
const SIGNAL: Signal = Signal::SIGURG;
const AFTER_MS: [u64; 6] = [2, 4, 8, 16, 32, 64];

/// Timers that send the signals; they are removed when this is dropped.
#[derive(Debug)]
pub(crate) struct FreezerWakeup {
    _timers: Vec<Timer>,
}

// SAFETY: a timer is the process's, and not of the thread that made it (timer_create(2)).
unsafe impl Send for FreezerWakeup {}

impl FreezerWakeup {
    /// Starts them, for this thread.
    pub(crate) fn start() -> Result<Self, Errno> {
        // The kernel restarts other system calls than sleeps.
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
        let long = Duration::from_millis(100).into();
        let (clock, flags) = (ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::empty());
        clock_nanosleep(clock, flags, &long)
    }

    /// How many sleeps in a row end early. On a busy machine signals meet no sleep, or each other.
    fn sleeps_that_end_early() -> usize {
        let _wakeup = FreezerWakeup::start().unwrap();
        let mut early = 0;
        while sleep() == Err(Errno::EINTR) {
            early += 1;
        }
        early
    }

    #[test]
    fn some_sleeps_end_early_and_no_more_than_there_are_signals() {
        let early: Vec<_> = (0..20).map(|_| sleeps_that_end_early()).collect();
        assert!(early.iter().any(|count| *count > 1), "{early:?}");
        assert!(
            early.iter().all(|count| *count <= AFTER_MS.len()),
            "{early:?}"
        );
        drop(FreezerWakeup::start().unwrap());
        assert!(
            sleep().is_ok(),
            "a signal came after the timers were dropped"
        );
    }
}
