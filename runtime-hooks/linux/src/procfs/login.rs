//! The user whose login led to a process: `/proc/PID/loginuid` (audit(7)).

use std::io;
use std::path::PathBuf;

use super::{malformed, number, read};

/// A number.
const MAX_BYTES: u64 = 64;
/// The kernel's value for no user (`AUDIT_UID_UNSET`).
const NOBODY: u32 = u32::MAX;

/// Returns the user who logged in, whatever sudo(8) and the like did since; `None` for processes of
/// services, without audit in the kernel, or if the process has ended.
pub fn login_user(pid: i32) -> io::Result<Option<u32>> {
    let path = PathBuf::from(format!("/proc/{pid}/loginuid"));
    let Some(text) = read(&path, MAX_BYTES)? else {
        return Ok(None);
    };
    let user = number(text.trim_ascii()).ok_or_else(|| malformed(&path))?;
    Ok(Some(user).filter(|user| *user != NOBODY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_started_what_is_not_there() {
        assert_eq!(login_user(i32::MAX).unwrap(), None);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_ne!(login_user(own).unwrap(), Some(NOBODY));
    }
}
