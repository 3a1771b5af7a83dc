//! The AppArmor profile of a process.

use std::io;
use std::path::PathBuf;

use super::ProcessRef;
use crate::escape::escaped;
use crate::procfs;

/// More than the name of a profile has (AppArmor: a page).
const MAX_BYTES: u64 = 64 << 10;

impl ProcessRef {
    /// Returns the AppArmor profile that is enforced, escaped for messages; `None` without one.
    ///
    /// # Errors
    /// An error of reading `/proc`. A kernel without AppArmor may not let the file be read.
    pub fn enforced_profile(&self) -> io::Result<Option<String>> {
        let path = PathBuf::from(format!("/proc/{}/attr/current", self.pid));
        let text = procfs::read(&path, MAX_BYTES)?;
        Ok(text.and_then(|text| enforced(&text)))
    }
}

/// `docker-default (enforce)`.
fn enforced(text: &[u8]) -> Option<String> {
    let name = text.trim_ascii().strip_suffix(b" (enforce)")?;
    Some(escaped(name))
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
}
