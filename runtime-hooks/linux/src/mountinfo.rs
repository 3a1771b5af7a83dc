//! `/proc/PID/mountinfo`: the mounts of a mount namespace.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::file::read_limited;
use crate::procfs::number;

/// The kernel allows 100,000 mounts (`fs.mount-max`); a line is rarely longer than 600 bytes.
const MAX_BYTES: u64 = 256 << 20;

/// The number of a device, or of a file system without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "stat(2) has them")]
pub struct Device {
    pub major: u32,
    pub minor: u32,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number in the mount namespace.
    pub id: u64,
    /// The number of the mount that `point` is in.
    pub parent: u64,
    /// The number of its file system.
    pub device: Device,
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// The directory on which it is mounted, without symbolic links.
    pub point: PathBuf,
    /// The type of the file system.
    pub kind: Vec<u8>,
    /// The options of the file system, separated by commas.
    pub options: Vec<u8>,
}

/// All mounts of this process's namespace, in the order in which the kernel lists them: of two
/// mounts on one directory the later one hides the other.
///
/// # Errors
/// An I/O error; [`io::ErrorKind::InvalidData`] if the table is too large.
pub fn mounts() -> io::Result<Vec<Mount>> {
    let table = read_limited(&File::open("/proc/self/mountinfo")?, MAX_BYTES)?;
    Ok(parse(&table))
}

/// The mounts that a process sees, with points as it names them.
///
/// # Errors
/// As [`mounts`]; also of a process that has ended.
pub fn mounts_of(pid: i32) -> io::Result<Vec<Mount>> {
    let table = read_limited(&File::open(format!("/proc/{pid}/mountinfo"))?, MAX_BYTES)?;
    Ok(parse(&table))
}

/// The mounts in the text of a `mountinfo`. Lines in another format are left out.
#[must_use]
pub fn parse(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(parse_line).collect()
}

/// "36 35 98:0 /root /point rw,noatime master:1 - type source options" (proc_pid_mountinfo(5)).
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let (id, parent) = (number(words.next()?)?, number(words.next()?)?);
    let device = device(words.next()?)?;
    let (root, point) = (words.next()?, words.next()?);
    // Any number of optional fields ends with "-".
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, _source, options) = (words.next()?, words.next()?, words.next()?);
    Some(Mount {
        id,
        parent,
        device,
        root: unescape(root),
        point: unescape(point),
        kind: kind.to_vec(),
        options: options.to_vec(),
    })
}

/// "98:0".
fn device(word: &[u8]) -> Option<Device> {
    let mut numbers = word.split(|byte| *byte == b':');
    let mut next = || number(numbers.next()?);
    Some(Device {
        major: next()?,
        minor: next()?,
    })
}

impl Mount {
    /// Whether the file system has this option.
    pub fn has_option(&self, option: &[u8]) -> bool {
        let mut options = self.options.split(|byte| *byte == b',');
        options.any(|it| it == option)
    }
}

/// The kernel writes space, tab, newline and backslash as "\040" and so on, three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = (byte == b'\\').then(|| after.split_first_chunk::<3>());
        let escaped = digits.flatten().and_then(|(digits, after)| {
            let digits = std::str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 8).ok()?, after))
        });
        let (byte, after) = escaped.unwrap_or((byte, after));
        bytes.push(byte);
        rest = after;
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_line_is_read_with_and_without_optional_fields() {
        let table =
            b"36 35 98:0 /root /point rw,noatime master:1 shared:2 - ext4 /dev/sda errors=ro\n\
            37 35 0:30 / /run rw - tmpfs tmpfs rw,size=1k\n\
            not a mount\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].id, mounts[0].parent), (36, 35));
        let device = Device {
            major: 98,
            minor: 0,
        };
        assert_eq!(mounts[0].device, device);
        assert!(mounts[1].has_option(b"size=1k") && !mounts[1].has_option(b"size"));
        assert_eq!(mounts[0].root, PathBuf::from("/root"));
        assert_eq!(mounts[0].kind, b"ext4");
        assert_eq!(mounts[0].options, b"errors=ro");
        assert_eq!(mounts[1].point, PathBuf::from("/run"));
    }

    #[test]
    fn escaped_and_foreign_bytes_of_a_path_are_kept() {
        let table = b"1 2 0:1 / /a\\040b\\134\xff\\9 rw - tmpfs tmpfs rw\n";
        let point = &parse(table)[0].point;
        assert_eq!(point.as_os_str().as_bytes(), b"/a b\\\xff\\9");
    }

    #[test]
    fn proc_is_mounted_here() {
        let mounts = mounts().unwrap();
        assert!(mounts.iter().any(|mount| mount.kind == b"proc"));
    }
}
