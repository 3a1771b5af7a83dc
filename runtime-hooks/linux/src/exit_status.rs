//! Exit codes as shells and OCI runtimes give them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The exit code of a child, or 128 + N if signal N ended it.
#[must_use]
pub fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_count_from_128() {
        assert_eq!(code(ExitStatus::from_raw(9)), 137);
        assert_eq!(code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code(ExitStatus::from_raw(0)), 0);
    }
}
