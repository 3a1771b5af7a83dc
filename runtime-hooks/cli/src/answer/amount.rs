//! Amounts and times for people.

use std::time::{Duration, SystemTime};

use stasis_host::time::parsed;

const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Formats bytes, with three digits at most before the point.
pub(crate) fn size(bytes: u64) -> String {
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1000.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 || amount >= 100.0 {
        format!("{amount:.0} {}", UNITS[unit])
    } else {
        format!("{amount:.1} {}", UNITS[unit])
    }
}

/// Formats a duration in its largest unit.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats how long something took: a millisecond at least.
pub(crate) fn took(seconds: f64) -> String {
    if seconds >= 0.1 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} ms", (seconds * 1000.0).max(1.0))
    }
}

/// Counts things of this name, which takes an "s" for more than one.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Returns how long ago a time of RFC 3339 is; `None` for a time in the future.
pub(crate) fn since(time: &str, now: SystemTime) -> Option<Duration> {
    now.duration_since(parsed(time)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let sizes = [0, 999, 1000, 3 << 20, 141 << 30, 1023 << 30].map(size);
        let expected = ["0 B", "999 B", "1.0 KiB", "3.0 MiB", "141 GiB", "1.0 TiB"];
        assert_eq!(sizes, expected);
        let ages =
            [0, 119, 120, 7199, 7200, 200_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 d"]);
    }

    #[test]
    fn one_is_not_plural() {
        let counts = [0, 1, 2].map(|count| counted(count, "container"));
        assert_eq!(counts, ["0 containers", "1 container", "2 containers"]);
    }

    #[test]
    fn nothing_takes_no_time() {
        let times = [0.0, 0.0004, 0.0431, 0.1, 12.34].map(took);
        assert_eq!(times, ["1 ms", "1 ms", "43 ms", "0.1 s", "12.3 s"]);
    }

    #[test]
    fn a_time_is_as_long_ago_as_it_is() {
        let now = parsed("2026-11-25T07:00:10Z").unwrap();
        let ago = since("2026-11-25T08:00:00+01:00", now);
        assert_eq!(ago, Some(Duration::from_secs(10)));
        assert_eq!(since("2026-11-25T07:00:11Z", now), None);
        assert_eq!(since("yesterday", now), None);
    }
}
