//! Times as people and logs have them.

use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Returns the seconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Formats a time to the second, RFC 3339.
pub fn rfc3339(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time).replace_nanosecond(0);
    let text = time.map(|time| time.format(&Rfc3339));
    text.ok().and_then(Result::ok).unwrap_or_default()
}

/// Parses a time of RFC 3339.
pub fn parsed(time: &str) -> Option<SystemTime> {
    let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
    Some(time.into())
}
