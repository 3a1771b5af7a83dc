//! `/proc/PID/fd` and `/proc/PID/fdinfo`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::OFlags;

use super::{about, gone_is_none, number, read};

/// The flags are in the second line; the rest depends on the file and may be long (epoll).
const MAX_FDINFO_BYTES: u64 = 64 << 20;
const MAX_FIRST_LINES: u64 = 4096;

/// An open file of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number in that process.
    pub number: u32,
    /// The file as the kernel names it: a path, or the like of `socket:[4711]`.
    target: OsString,
}

impl Descriptor {
    /// The file as the kernel names it.
    pub fn target(&self) -> &[u8] {
        self.target.as_bytes()
    }
}

/// The open files of a process; none for a process that has ended. Leaves out files that are closed
/// meanwhile, and files whose name is longer than a page (ENAMETOOLONG).
pub fn descriptors(pid: i32) -> io::Result<impl Iterator<Item = Descriptor>> {
    let path = PathBuf::from(format!("/proc/{pid}/fd"));
    let entries = gone_is_none(fs::read_dir(&path)).map_err(|error| about(&path, &error))?;
    Ok(entries.into_iter().flatten().filter_map(|entry| {
        let entry = entry.ok()?;
        Some(Descriptor {
            number: number(entry.file_name().as_bytes())?,
            target: fs::read_link(entry.path()).ok()?.into_os_string(),
        })
    }))
}

/// Whether a descriptor of a process is closed by execve(2); `None` if it is not open any more.
pub fn close_on_exec(pid: i32, number: u32) -> io::Result<Option<bool>> {
    Ok(fdinfo(pid, number)?.map(|text| has_close_on_exec(&text)))
}

/// Reads the fdinfo of a descriptor; `None` if it is not open any more.
pub fn fdinfo(pid: i32, number: u32) -> io::Result<Option<Vec<u8>>> {
    let path = PathBuf::from(format!("/proc/{pid}/fdinfo/{number}"));
    read(&path, MAX_FDINFO_BYTES)
}

/// Returns the value of this name in the first lines of a descriptor's fdinfo, such as `map_type`;
/// `None` if the descriptor is not open any more, or has no such line.
pub fn value_in_fdinfo(pid: i32, number: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let file = gone_is_none(File::open(format!("/proc/{pid}/fdinfo/{number}")))?;
    let mut text = Vec::new();
    if let Some(file) = file {
        gone_is_none(file.take(MAX_FIRST_LINES).read_to_end(&mut text))?;
    }
    let mut lines = text.split(|byte| *byte == b'\n');
    let value = |line: &[u8]| {
        let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
        Some(value.trim_ascii().to_vec())
    };
    Ok(lines.find_map(value))
}

/// Returns the path that leads to the open file itself, whatever its name leads to now.
#[must_use]
pub fn held_file(pid: i32, number: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/fd/{number}"))
}

/// The flags are octal, and `O_CLOEXEC` is among them (proc_pid_fdinfo(5)).
pub(super) fn has_close_on_exec(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    let flags = lines.find_map(|line| line.strip_prefix(b"flags:"));
    let flags = flags.and_then(|flags| std::str::from_utf8(flags.trim_ascii()).ok());
    let flags = flags.and_then(|flags| u32::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & OFlags::CLOEXEC.bits() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn close_on_exec_is_read_from_octal_flags() {
        assert!(has_close_on_exec(
            b"pos:\t0\nflags:\t02100002\nmnt_id:\t15\n"
        ));
        assert!(!has_close_on_exec(b"pos:\t0\nflags:\t0100002\n"));
    }

    #[test]
    fn a_file_of_any_name_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory
            .path()
            .join(OsString::from_vec(b"mod\xe8le".to_vec()));
        let file = File::create(&path).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        let found = descriptors(own).unwrap().find(|one| one.number == number);
        assert_eq!(found.unwrap().target(), path.as_os_str().as_bytes());
        assert_eq!(close_on_exec(own, number).unwrap(), Some(true));
        let said = |name| value_in_fdinfo(own, number, name).unwrap();
        assert_eq!(said("pos"), Some(b"0".to_vec()));
        assert_eq!(said("map_type"), None);
        drop(file);
        assert_eq!(descriptors(i32::MAX).unwrap().count(), 0);
        assert_eq!(close_on_exec(i32::MAX, 0).unwrap(), None);
    }
}
