//! The mappings of a task, as `/proc/PID/smaps` tells of them.

use std::io::{self, BufRead};

/// A mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// "rw-p"
    pub(crate) permissions: String,
    pub(crate) inode: u64,
    /// Empty, a path, or a name in brackets.
    pub(crate) name: String,
    /// Bytes in private pages, in memory.
    pub(crate) anonymous: u64,
    /// Bytes that are swapped out.
    pub(crate) swapped: u64,
    /// Two letters each (Documentation/filesystems/proc.rst).
    pub(crate) flags: Vec<String>,
}

impl Mapping {
    /// Private memory that no file is behind.
    pub(crate) fn is_private_anonymous(&self) -> bool {
        self.permissions.ends_with('p') && self.inode == 0
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }
}

/// Reads the file.
pub(crate) fn read(file: impl BufRead) -> io::Result<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in file.lines() {
        let line = line?;
        if let Some(mapping) = head(&line) {
            mappings.push(mapping);
            continue;
        }
        let (Some(mapping), Some((key, value))) = (mappings.last_mut(), line.split_once(':'))
        else {
            return Err(io::Error::other(format!(
                "unexpected line in smaps: {line:?}"
            )));
        };
        match key {
            "Anonymous" => mapping.anonymous = kib(value)?,
            "Swap" => mapping.swapped = kib(value)?,
            "VmFlags" => mapping.flags = value.split_whitespace().map(str::to_owned).collect(),
            _ => {}
        }
    }
    Ok(mappings)
}

/// "55d0c000-55d0d000 rw-p 00000000 00:00 0     [heap]"
fn head(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let permissions = words.next()?.to_owned();
    let inode = words.nth(2)?.parse().ok()?;
    let name = words.next().unwrap_or_default().trim().to_owned();
    Some(Mapping {
        start,
        end,
        permissions,
        inode,
        name,
        ..Mapping::default()
    })
}

/// "     12 kB"
fn kib(value: &str) -> io::Result<u64> {
    let number = value.trim().strip_suffix(" kB").map(str::parse::<u64>);
    match number {
        Some(Ok(number)) => Ok(number * 1024),
        _ => Err(io::Error::other(format!(
            "unexpected size in smaps: {value:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
7f1000000000-7f1040000000 rw-p 00000000 00:00 0 
Size:            1048576 kB
Anonymous:         20480 kB
Swap:                  4 kB
VmFlags: rd wr mr mw me ac sd hg 
55d0c000-55d0d000 rw-s 00001000 fe:01 77                   /a file: with a colon
Anonymous:             0 kB
VmFlags: rd wr sh
";

    #[test]
    fn mappings_are_read() {
        let mappings = read(TEXT.as_bytes()).unwrap();
        assert_eq!(mappings.len(), 2);
        let area = &mappings[0];
        assert_eq!((area.start, area.end), (0x7f10_0000_0000, 0x7f10_4000_0000));
        assert!(area.is_private_anonymous() && area.has("hg") && !area.has("sh"));
        assert_eq!((area.anonymous, area.swapped), (20 << 20, 4096));
        assert_eq!(mappings[1].name, "/a file: with a colon");
        assert!(!mappings[1].is_private_anonymous());
    }

    #[test]
    fn what_is_no_smaps_is_an_error() {
        assert!(read(&b"Anonymous: 4 kB\n"[..]).is_err());
        assert!(read(&b"1-2 rw-p 0 0:0 0 \nAnonymous: much\n"[..]).is_err());
    }

    #[test]
    fn our_own_are_read() {
        let file = std::fs::File::open("/proc/self/smaps").unwrap();
        let mappings = read(std::io::BufReader::new(file)).unwrap();
        assert!(mappings.iter().any(|mapping| mapping.name == "[heap]"));
    }
}
