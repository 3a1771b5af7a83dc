//! `/proc/PID/maps`.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::{about, gone_is_none, hexadecimal, malformed, number};
use crate::file::{not_a_file, open_found, too_large};

/// 65530 mappings (the default of vm.max_map_count) with paths of 4095 bytes. Nothing is kept:
/// the limit is for the time that reading takes.
const MAX_BYTES: u64 = 256 << 20;

/// A line of `/proc/PID/maps`, or the first line of a mapping in `smaps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// `rwxp`, with `-` for each right that is missing and `s` if it is shared.
    pub permissions: [u8; 4],
    /// Where in the mapped file it begins, in bytes.
    pub offset: u64,
    /// The device of the mapped file, as the kernel writes it.
    pub device: &'a [u8],
    /// The inode of the mapped file; 0 if there is none.
    pub inode: u64,
    /// The mapped file as the kernel names it, a name in brackets, or nothing.
    pub path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// The mapping that a line is about, if it is such a line:
    /// `55d0c000-55d0d000 rw-p 00000000 fe:01 77     /a file`.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let end = rest.iter().position(|byte| *byte == b' ');
            let (field, after) = rest.split_at(end.unwrap_or(rest.len()));
            rest = after.trim_ascii_start();
            field
        };
        let (range, permissions) = (field(), field());
        let (offset, device, inode) = (field(), field(), field());
        let dash = range.iter().position(|byte| *byte == b'-')?;
        Some(Self {
            start: hexadecimal(&range[..dash])?,
            end: hexadecimal(&range[dash + 1..])?,
            permissions: permissions.try_into().ok()?,
            offset: hexadecimal(offset)?,
            device,
            inode: number(inode)?,
            path: rest.strip_suffix(b"\n").unwrap_or(rest),
        })
    }

    /// How many bytes it has.
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether one of its permissions is this letter.
    pub fn has(&self, permission: u8) -> bool {
        self.permissions.contains(&permission)
    }
}

/// Calls `visit` for every mapping of a process, in the order of their addresses, until it breaks.
/// A process that has ended has none.
///
/// # Errors
/// An I/O error, or an error for a file that is larger than any honest one.
pub fn for_each_mapping<B>(
    pid: i32,
    mut visit: impl FnMut(Mapping<'_>) -> ControlFlow<B>,
) -> io::Result<Option<B>> {
    let path = PathBuf::from(format!("/proc/{pid}/maps"));
    let Some(file) = gone_is_none(File::open(&path)).map_err(|error| about(&path, &error))? else {
        return Ok(None);
    };
    let mut reader = BufReader::new(file.take(MAX_BYTES));
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = gone_is_none(reader.read_until(b'\n', &mut line));
        if read.map_err(|error| about(&path, &error))?.unwrap_or(0) == 0 {
            break;
        }
        if !line.ends_with(b"\n") {
            return Err(about(&path, &too_large(MAX_BYTES)));
        }
        let mapping = Mapping::parse(&line).ok_or_else(|| malformed(&path))?;
        if let ControlFlow::Break(found) = visit(mapping) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// How many mappings a process may have (`vm.max_map_count`).
pub fn most_mappings() -> io::Result<usize> {
    let path = Path::new("/proc/sys/vm/max_map_count");
    let text = super::read(path, 64)?.unwrap_or_default();
    number(text.trim_ascii()).ok_or_else(|| malformed(path))
}

/// How many mappings a process has; none if it has ended.
pub fn count_mappings(pid: i32) -> io::Result<usize> {
    let mut count = 0;
    for_each_mapping::<Infallible>(pid, |_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// The path by which the file behind a mapping is reached, whatever is at its name now.
#[must_use]
pub fn mapped_file(pid: i32, mapping: &Mapping<'_>) -> PathBuf {
    let (start, end) = (mapping.start, mapping.end);
    PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
}

/// Opens the regular file behind a mapping, whatever is at its path now, to be read. `None` if the
/// process has ended or has no such mapping any more. Reading it may take as long as its file
/// system takes.
///
/// # Errors
/// An I/O error with its path; [`io::ErrorKind::InvalidData`] for anything but a regular file.
pub fn open_mapped(pid: i32, mapping: &Mapping<'_>) -> io::Result<Option<File>> {
    let path = mapped_file(pid, mapping);
    let opened = || {
        let found = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        open_found(&found)?.ok_or_else(not_a_file)
    };
    gone_is_none(opened()).map_err(|error| about(&path, &error))
}

pub(crate) fn any_mapping(pid: i32, matches: impl Fn(Mapping<'_>) -> bool) -> io::Result<bool> {
    let found = for_each_mapping(pid, |mapping| {
        if matches(mapping) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_hold_anything() {
        let line =
            b"7f00-8f00 r--s 00001000 fe:01 77                         /a  b/mod\xe8le (deleted)\n";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(
            (mapping.start, mapping.end, mapping.length()),
            (0x7f00, 0x8f00, 0x1000)
        );
        assert_eq!((mapping.offset, mapping.device), (0x1000, &b"fe:01"[..]));
        assert_eq!(
            (mapping.inode, mapping.path),
            (77, &b"/a  b/mod\xe8le (deleted)"[..])
        );
        assert!(mapping.has(b'r') && mapping.has(b's') && !mapping.has(b'w'));
    }

    #[test]
    fn anonymous_memory_has_no_path() {
        for line in [
            "1000-2000 rw-p 00000000 00:00 0 \n",
            "1000-2000 rw-p 00000000 00:00 0",
        ] {
            assert_eq!(Mapping::parse(line.as_bytes()).unwrap().path, b"");
        }
    }

    #[test]
    fn the_file_behind_a_mapping_is_opened() {
        use std::os::unix::fs::MetadataExt;
        let own = i32::try_from(std::process::id()).unwrap();
        let found = for_each_mapping(own, |mapping| {
            let is_libc = mapping.path.windows(8).any(|part| part == b"/libc.so");
            if !is_libc {
                return ControlFlow::Continue(());
            }
            let file = open_mapped(own, &mapping).unwrap().unwrap();
            ControlFlow::Break((file.metadata().unwrap().ino(), mapping.inode))
        });
        let (opened, mapped) = found.unwrap().unwrap();
        assert_eq!(opened, mapped);
        let gone = Mapping::parse(b"1000-2000 r--p 00000000 fe:01 77 /a").unwrap();
        assert!(open_mapped(own, &gone).unwrap().is_none());
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "\n",
            "Size: 4 kB\n",
            "1000 rw-p 0 00:00 0\n",
            "1-2 rw 0 0:0 0\n",
        ] {
            assert_eq!(Mapping::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn those_of_a_process_are_visited_until_one_is_found() {
        let own = i32::try_from(std::process::id()).unwrap();
        let is_libc =
            |mapping: Mapping<'_>| mapping.path.windows(8).any(|part| part == b"/libc.so");
        assert!(any_mapping(own, is_libc).unwrap());
        assert!(!any_mapping(own, |mapping| mapping.path == b"/nonexistent").unwrap());
        assert!(!any_mapping(i32::MAX, |_| true).unwrap());
    }
}
