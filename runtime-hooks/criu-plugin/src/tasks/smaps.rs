//! The mappings of a task, from `/proc/PID/smaps`: bytes, since a mapped file may have any name.

use std::io::{self, BufRead, BufReader, Read};

use stasis_linux::procfs;

/// A line has at most a path of PATH_MAX, each byte of it escaped.
const LINE_BYTES: u64 = 32 << 10;
/// Many times the default of `vm.max_map_count`.
const MAX_MAPPINGS: usize = 1 << 20;

/// A mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// "rw-p"
    pub(crate) permissions: [u8; 4],
    pub(crate) inode: u64,
    /// Empty, a path, or a name in brackets.
    pub(crate) name: Vec<u8>,
    /// Bytes in private pages, in memory.
    pub(crate) anonymous: u64,
    /// Bytes that are swapped out.
    pub(crate) swapped: u64,
    /// Two letters each (Documentation/filesystems/proc.rst).
    pub(crate) flags: Vec<[u8; 2]>,
}

impl Mapping {
    /// Private memory that no file is behind.
    pub(crate) fn is_private_anonymous(&self) -> bool {
        self.permissions[3] == b'p' && self.inode == 0
    }

    pub(crate) fn is_read_write(&self) -> bool {
        self.permissions.starts_with(b"rw")
    }

    /// Bytes that it holds itself, in memory or swapped out.
    pub(crate) fn bytes(&self) -> u64 {
        self.anonymous + self.swapped
    }

    pub(crate) fn has(&self, flag: [u8; 2]) -> bool {
        self.flags.contains(&flag)
    }
}

/// Reads the file.
pub(crate) fn read(file: impl Read) -> io::Result<Vec<Mapping>> {
    let mut file = BufReader::new(file);
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        file.by_ref()
            .take(LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        let Some(text) = line.strip_suffix(b"\n") else {
            // An unfinished line is longer than any real one.
            return if line.is_empty() {
                Ok(mappings)
            } else {
                Err(unexpected(&line))
            };
        };
        match procfs::Mapping::parse(text) {
            Some(_) if mappings.len() == MAX_MAPPINGS => {
                return Err(io::Error::other(
                    "a process with more than a million mappings",
                ));
            }
            Some(head) => mappings.push(Mapping {
                start: head.start,
                end: head.end,
                permissions: head.permissions,
                inode: head.inode,
                name: head.path.to_vec(),
                ..Mapping::default()
            }),
            None => add_field(mappings.last_mut(), text).ok_or_else(|| unexpected(text))?,
        }
    }
}

/// "Anonymous:         20480 kB"
fn add_field(mapping: Option<&mut Mapping>, line: &[u8]) -> Option<()> {
    let mapping = mapping?;
    let colon = line.iter().position(|byte| *byte == b':')?;
    let value = &line[colon + 1..];
    match &line[..colon] {
        b"Anonymous" => mapping.anonymous = kib(value)?,
        b"Swap" => mapping.swapped = kib(value)?,
        b"VmFlags" => {
            let flags = value.split(u8::is_ascii_whitespace);
            mapping.flags = flags.filter_map(|flag| flag.try_into().ok()).collect();
        }
        _ => {}
    }
    Some(())
}

/// "     12 kB"
fn kib(value: &[u8]) -> Option<u64> {
    let number = str::from_utf8(value.trim_ascii().strip_suffix(b" kB")?).ok()?;
    number.parse::<u64>().ok()?.checked_mul(1024)
}

fn unexpected(line: &[u8]) -> io::Error {
    let line = &line[..line.len().min(100)];
    let text = format!("unexpected line in smaps: \"{}\"", line.escape_ascii());
    io::Error::other(text)
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
        assert!(area.is_private_anonymous() && area.has(*b"hg") && !area.has(*b"sh"));
        assert_eq!((area.anonymous, area.swapped), (20 << 20, 4096));
        assert_eq!(mappings[1].name, b"/a file: with a colon");
        assert!(!mappings[1].is_private_anonymous());
    }

    #[test]
    fn what_is_no_smaps_is_an_error() {
        assert!(read(&b"Anonymous: 4 kB\n"[..]).is_err());
        assert!(read(&b"1-2 rw-p 0 0:0 0 \nAnonymous: much\n"[..]).is_err());
    }

    #[test]
    fn names_are_any_bytes_and_have_an_end() {
        let text = b"1000-2000 rw-s 0 fe:01 7    /\xe8\xae [heap]\nAnonymous:  0 kB\n";
        assert_eq!(read(&text[..]).unwrap()[0].name, b"/\xe8\xae [heap]");
        let endless = io::repeat(b'x').take(1 << 30);
        assert!(read(endless).is_err());
    }

    #[test]
    fn our_own_are_read() {
        let file = std::fs::File::open("/proc/self/smaps").unwrap();
        let mappings = read(file).unwrap();
        assert!(mappings.iter().any(|mapping| mapping.name == b"[heap]"));
    }
}
