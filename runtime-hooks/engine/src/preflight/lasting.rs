//! A blocker that exists for a moment only is no reason to refuse anything.

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far longer than an exec takes, or a request that is answered, also on a busy machine.
pub(crate) const MOMENT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// Returns the findings that are left after a while; `still` looks again.
///
/// # Errors
/// The error of `still`.
pub(crate) fn lasting<T>(
    mut found: Vec<T>,
    moment: Duration,
    mut still: impl FnMut(Vec<T>) -> io::Result<Vec<T>>,
) -> io::Result<Vec<T>> {
    let began = Instant::now();
    while !found.is_empty() {
        found = still(found)?;
        if began.elapsed() >= moment {
            break;
        }
        sleep(POLL);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_for_a_moment_only_is_left_out() {
        let mut looks = 0;
        let until_third_look = |mut found: Vec<i32>| {
            looks += 1;
            found.retain(|_| looks < 3);
            Ok(found)
        };
        let forever = Duration::from_secs(3600);
        let momentary = lasting(vec![7], forever, until_third_look).unwrap();
        assert!(momentary.is_empty(), "{momentary:?}");
        let keeps = |mut found: Vec<i32>| {
            found.retain(|pid| *pid == 8);
            Ok(found)
        };
        assert_eq!(lasting(vec![7, 8], POLL, keeps).unwrap(), [8]);
    }
}
