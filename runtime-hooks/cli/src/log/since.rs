//! A time in the past, as people write it.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use stasis_host::time::parsed;

/// A time in the past.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since(pub(crate) SystemTime);

/// A text that is no such time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTime {
    #[error("write a number of s, min, h or d (20min), or a time (2026-11-25T07:00:00Z)")]
    NoTime,
    #[error("that is before 1970, where all times begin")]
    Before1970,
}

impl FromStr for Since {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        time(text, SystemTime::now()).map(Self)
    }
}

fn time(text: &str, now: SystemTime) -> Result<SystemTime, InvalidTime> {
    let time = match parsed(text) {
        Some(time) => Some(time),
        None => now.checked_sub(ago(text).ok_or(InvalidTime::NoTime)?),
    };
    let since_1970 = time.filter(|time| *time >= SystemTime::UNIX_EPOCH);
    since_1970.ok_or(InvalidTime::Before1970)
}

/// Reads a number with a unit.
fn ago(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    let seconds = match unit.trim_start() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A month after the beginning of 1970.
    const NOW: u64 = 31 * 86_400;

    fn seconds(text: &str) -> Result<u64, InvalidTime> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        let time = time(text, now)?;
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        Ok(since.unwrap().as_secs())
    }

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("30s", NOW - 30),
            ("20min", NOW - 1200),
            ("20 m", NOW - 1200),
            ("2h", NOW - 7200),
            ("7d", NOW - 604_800),
            ("31d", 0),
            ("1970-01-01T00:00:09Z", 9),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let other = [
            "",
            "s",
            "1",
            "1y",
            "-1s",
            "99999999999999999999s",
            "9999999999999999d",
            "now",
        ];
        for text in other {
            assert_eq!(seconds(text), Err(InvalidTime::NoTime), "{text}");
        }
    }

    #[test]
    fn what_is_before_1970_is_refused_as_that() {
        for text in ["1969-12-31T23:59:59Z", "32d", "999999999999d"] {
            assert_eq!(seconds(text), Err(InvalidTime::Before1970), "{text}");
        }
    }
}
