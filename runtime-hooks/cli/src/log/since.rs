//! A time in the past, as people write it.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use stasis_host::time::parsed;

/// A time in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    Ago(Duration),
    At(SystemTime),
}

/// A text that is no time.
#[derive(Debug, thiserror::Error)]
#[error("write a number of s, min, h or d (20min), or a time (2026-11-25T07:00:00Z)")]
pub(crate) struct InvalidTime;

impl FromStr for Since {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(at) = parsed(text) {
            return Ok(Self::At(at));
        }
        let unit_at = text.find(|c: char| !c.is_ascii_digit());
        let (number, unit) = text.split_at(unit_at.ok_or(InvalidTime)?);
        let number: u64 = number.parse().map_err(|_| InvalidTime)?;
        let seconds = match unit.trim_start() {
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(InvalidTime),
        };
        let seconds = number.checked_mul(seconds).ok_or(InvalidTime)?;
        Ok(Self::Ago(Duration::from_secs(seconds)))
    }
}

impl Since {
    /// Returns the time itself; the epoch, if it is too far back to be represented.
    pub(crate) fn before(self, now: SystemTime) -> SystemTime {
        match self {
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH),
            Self::At(at) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_what_is_none_is_refused() {
        let ago = |seconds| Some(Since::Ago(Duration::from_secs(seconds)));
        for (text, expected) in [
            ("30s", ago(30)),
            ("20min", ago(1200)),
            ("20 m", ago(1200)),
            ("2h", ago(7200)),
            ("7d", ago(604_800)),
            ("1970-01-01T00:00:09Z", None),
        ] {
            let since: Since = text.parse().unwrap();
            let at = Since::At(SystemTime::UNIX_EPOCH + Duration::from_secs(9));
            assert_eq!(since, expected.unwrap_or(at), "{text}");
        }
        for text in [
            "",
            "s",
            "1",
            "1y",
            "-1s",
            "99999999999999999999s",
            "9999999999999999d",
            "now",
        ] {
            assert!(text.parse::<Since>().is_err(), "{text}");
        }
        let long = Since::Ago(Duration::from_secs(u64::MAX));
        assert_eq!(long.before(SystemTime::now()), SystemTime::UNIX_EPOCH);
    }
}
