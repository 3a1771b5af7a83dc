//! `/proc/meminfo`: the memory of the machine.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{about, number};
use crate::file::read_limited;

const PATH: &str = "/proc/meminfo";
/// Some 60 lines of 30 bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The kernel's figures of the machine's memory (`proc_meminfo(5)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemInfo {
    text: Vec<u8>,
}

impl MemInfo {
    /// Reads the figures of this machine.
    pub fn read() -> io::Result<Self> {
        let path = Path::new(PATH);
        let read = File::open(path).and_then(|file| read_limited(&file, MAX_BYTES));
        let text = read.map_err(|error| about(path, &error))?;
        Ok(Self { text })
    }

    /// An amount of memory in bytes.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        let kib: u64 = number(self.field(name)?.strip_suffix(b"kB")?.trim_ascii())?;
        kib.checked_mul(1 << 10)
    }

    /// Returns the memory that the kernel manages, in bytes.
    pub fn total(&self) -> Option<u64> {
        self.bytes("MemTotal")
    }

    /// Returns the memory that is available without swapping, in bytes.
    pub fn available(&self) -> Option<u64> {
        self.bytes("MemAvailable")
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        let mut lines = self.text.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            Some(value.trim_ascii())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_bytes() {
        let text = b"MemTotal:       16384 kB\nMemAvailable:    8 kB\nHugePages_Total:   4\n\
            HugePages_Free:        3\nHugepagesize:       2048 kB\n";
        let text = text.to_vec();
        let info = MemInfo { text };
        assert_eq!(info.bytes("MemTotal"), Some(16 << 20));
        assert_eq!(info.available(), Some(8 << 10));
        assert_eq!(info.bytes("HugePages_Total"), None, "no amount of memory");
    }

    #[test]
    fn that_of_this_machine_is_read() {
        let info = MemInfo::read().unwrap();
        assert!(info.available() > Some(0));
    }
}
