//! Periodic timers (timerfd_create(2)) that have expired, and were not read.
//!
//! The kernel starts such a timer again when it is read, and until then shows no time left of its
//! period (fs/timerfd.c, `timerfd_show`). CRIU sets that time again, which disarms the timer: it
//! stays readable once, and never expires again (criu/pie/restorer.c, `timerfd_settime`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

use crate::procfs::{descriptors, fdinfo, number};

const TIMER: &[u8] = b"anon_inode:[timerfd]";
/// The shortest time: the timer has expired.
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1,
};

/// Lets the expired periodic timers of a process that stands still expire again.
pub fn start_expired_timers(pid: i32) -> io::Result<()> {
    for descriptor in descriptors(pid)?.filter(|it| it.target() == TIMER) {
        let text = fdinfo(pid, descriptor.number)?;
        if let Some(period) = text.as_deref().and_then(expired) {
            let timer = borrow(pid, descriptor.number)?;
            let again = Itimerspec {
                it_interval: period,
                it_value: AT_ONCE,
            };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &again)?;
        }
    }
    Ok(())
}

/// Duplicates a descriptor of the process.
fn borrow(pid: i32, descriptor: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let number = descriptor.cast_signed();
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// Returns the period of a timer that has expired and was not read.
fn expired(text: &[u8]) -> Option<Timespec> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut value = |name: &[u8]| lines.find_map(|line| line.strip_prefix(name));
    let ticks: u64 = number(value(b"ticks:")?.trim_ascii())?;
    // CRIU sets timers of an absolute time to the present one, so that they do expire again.
    let is_absolute = value(b"settime flags:")?.trim_ascii() != b"00";
    let (left, period) = (time(value(b"it_value:")?)?, time(value(b"it_interval:")?)?);
    let is_expired = ticks > 0 && !is_absolute && left == Timespec::default() && period != left;
    is_expired.then_some(period)
}

/// Parses a time of the form "(seconds, nanoseconds)".
fn time(text: &[u8]) -> Option<Timespec> {
    let inside = text.trim_ascii().strip_prefix(b"(")?.strip_suffix(b")")?;
    let at = inside.iter().position(|byte| *byte == b',')?;
    Some(Timespec {
        tv_sec: number(inside[..at].trim_ascii())?,
        tv_nsec: number(inside[at + 1..].trim_ascii())?,
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::read;
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create, timerfd_gettime};

    use super::*;

    fn text_of(timer: &OwnedFd) -> Vec<u8> {
        let own = std::process::id().cast_signed();
        let number = timer.as_raw_fd().cast_unsigned();
        fdinfo(own, number).unwrap().unwrap()
    }

    fn set(timer: &OwnedFd, value: Timespec, period: Timespec) {
        let both = Itimerspec {
            it_interval: period,
            it_value: value,
        };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &both).unwrap();
    }

    #[test]
    fn only_one_that_has_expired_and_is_periodic_is_started() {
        let make = || timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).unwrap();
        let hour = Timespec {
            tv_sec: 3600,
            tv_nsec: 5,
        };
        let [expired_one, waiting, once] = [make(), make(), make()];
        set(&expired_one, AT_ONCE, hour);
        set(&waiting, hour, hour);
        set(&once, AT_ONCE, Timespec::default());
        for timer in [&expired_one, &once] {
            poll(&mut [PollFd::new(timer, PollFlags::IN)], None).unwrap();
        }
        assert_eq!(expired(&text_of(&expired_one)), Some(hour));
        assert_eq!(expired(&text_of(&waiting)), None);
        assert_eq!(expired(&text_of(&once)), None);
        // A restored timer looks the same to the kernel, and a read does not start it.
        let own = std::process::id().cast_signed();
        start_expired_timers(own).unwrap();
        poll(&mut [PollFd::new(&expired_one, PollFlags::IN)], None).unwrap();
        read(&expired_one, &mut [0; 8]).unwrap();
        let left = timerfd_gettime(&expired_one).unwrap().it_value;
        assert!(left.tv_sec > 3000, "{left:?}");
        for text in [
            "",
            "ticks: 1",
            "ticks: 1\nit_value: (0\nit_interval: (1, 0)",
        ] {
            assert_eq!(expired(text.as_bytes()), None);
        }
    }
}
