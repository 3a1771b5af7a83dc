//! `/proc/meminfo`: the memory of the machine.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{about, number};
use crate::file::read_limited;

const PATH: &str = "/proc/meminfo";
/// Some 60 lines of 30 bytes.
const MAX_BYTES: u64 = 64 << 10;

/// What the kernel says of the machine's memory (`proc_meminfo(5)`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemInfo {
    text: Vec<u8>,
}

impl MemInfo {
    /// Of this machine.
    pub fn read() -> io::Result<Self> {
        let path = Path::new(PATH);
        let read = File::open(path).and_then(|file| read_limited(&file, MAX_BYTES));
        let text = read.map_err(|error| about(path, &error))?;
        Ok(Self { text })
    }

    /// Parses the contents of such a file, or of that of a NUMA node, whose lines begin with
    /// "Node 0".
    #[must_use]
    pub fn from_text(text: Vec<u8>) -> Self {
        Self { text }
    }

    /// An amount of memory in bytes.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<u64> {
        let kib: u64 = number(self.field(name)?.strip_suffix(b"kB")?.trim_ascii())?;
        kib.checked_mul(1 << 10)
    }

    /// All that the kernel manages, in bytes.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.bytes("MemTotal")
    }

    /// What is available without swapping, in bytes.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        self.bytes("MemAvailable")
    }

    /// What is reserved for huge pages (hugetlbfs), and in nobody's use, in bytes.
    #[must_use]
    pub fn free_huge_pages(&self) -> Option<u64> {
        let pages: u64 = number(self.field("HugePages_Free")?)?;
        pages.checked_mul(self.bytes("Hugepagesize")?)
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        let mut lines = self.text.split(|byte| *byte == b'\n');
        lines.find_map(|line| {
            let (named, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            let last = named.rsplit(|byte| *byte == b' ').next();
            (last == Some(name.as_bytes())).then(|| value[1..].trim_ascii())
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
        let info = MemInfo::from_text(text.to_vec());
        assert_eq!(info.bytes("MemTotal"), Some(16 << 20));
        assert_eq!(info.available(), Some(8 << 10));
        assert_eq!(info.free_huge_pages(), Some(6 << 20));
        assert_eq!(info.bytes("HugePages_Total"), None, "no amount of memory");
        let node = MemInfo::from_text(b"Node 1 MemTotal:  2 kB\n".to_vec());
        assert_eq!(node.bytes("MemTotal"), Some(2048));
        assert_eq!(node.available(), None);
    }

    #[test]
    fn that_of_this_machine_is_read() {
        let info = MemInfo::read().unwrap();
        assert!(info.available() > Some(0) && info.free_huge_pages().is_some());
    }
}
