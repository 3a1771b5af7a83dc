//! What a process is confined by, and what it may lock into memory.

use std::io;
use std::path::PathBuf;

use super::ProcessRef;
use crate::escape::escaped;
use crate::procfs::{self, Status, number};

/// More than a name of a profile has (AppArmor: a page).
const MAX_BYTES: u64 = 64 << 10;
/// capabilities(7).
const CAP_IPC_LOCK: u64 = 1 << 14;

/// What a process has locked into memory, and how much it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedMemory {
    /// Bytes that it has locked (mlock(2), mlockall(2)).
    pub bytes: u64,
    /// The most that it may lock; `None` where nothing limits it.
    pub limit: Option<u64>,
}

impl ProcessRef {
    /// The AppArmor profile that is enforced for it, as it may be shown; `None` without one.
    ///
    /// # Errors
    /// An error of reading `/proc`. A kernel without AppArmor may not let the file be read.
    pub fn enforced_profile(&self) -> io::Result<Option<String>> {
        let path = PathBuf::from(format!("/proc/{}/attr/current", self.pid));
        let text = procfs::read(&path, MAX_BYTES)?;
        Ok(text.and_then(|text| enforced(&text)))
    }

    /// What it has locked; `None` if it has ended.
    pub fn locked_memory(&self) -> io::Result<Option<LockedMemory>> {
        let path = PathBuf::from(format!("/proc/{}/limits", self.pid));
        let (status, limits) = (Status::of(self.pid)?, procfs::read(&path, MAX_BYTES)?);
        Ok(status.zip(limits).and_then(|(status, limits)| {
            Some(LockedMemory {
                bytes: locked(&status)?,
                limit: limit(&limits).filter(|_| !may_lock_all(&status)),
            })
        }))
    }
}

/// `docker-default (enforce)`.
fn enforced(text: &[u8]) -> Option<String> {
    let name = text.trim_ascii().strip_suffix(b" (enforce)")?;
    Some(escaped(name))
}

fn locked(status: &Status) -> Option<u64> {
    let kib: u64 = number(status.field("VmLck")?.strip_suffix(b" kB")?.trim_ascii())?;
    kib.checked_mul(1 << 10)
}

fn may_lock_all(status: &Status) -> bool {
    let effective = status.field("CapEff").and_then(procfs::hexadecimal);
    effective.is_some_and(|capabilities| capabilities & CAP_IPC_LOCK != 0)
}

/// The soft limit: `Max locked memory         8388608              8388608              bytes`.
fn limit(limits: &[u8]) -> Option<u64> {
    let mut lines = limits.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"Max locked memory"))?;
    number(procfs::words(line).next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_counts_where_it_is_enforced() {
        let of = |text: &str| enforced(text.as_bytes());
        assert_eq!(
            of("docker-default (enforce)\n").as_deref(),
            Some("docker-default")
        );
        assert_eq!(of("docker-default (complain)\n"), None);
        assert_eq!(of("unconfined\n"), None);
        assert_eq!(of("system_u:system_r:container_t:s0:c1,c2"), None);
    }

    #[test]
    fn what_may_be_locked_is_read() {
        let of = |text: &str| limit(text.as_bytes());
        let line =
            |soft| format!("Max processes  5 5 processes\nMax locked memory {soft} 9 bytes\n");
        assert_eq!(of(&line("8388608")), Some(8_388_608));
        assert_eq!(of(&line("unlimited")), None);
        let status =
            Status::from_text(b"VmLck:\t     256 kB\nCapEff:\t0000000000004000\n".to_vec());
        assert_eq!(locked(&status), Some(256 << 10));
        assert!(may_lock_all(&status));
        let own = i32::try_from(std::process::id()).unwrap();
        let own = ProcessRef::open(own).unwrap().unwrap();
        assert!(own.locked_memory().unwrap().is_some());
    }
}
