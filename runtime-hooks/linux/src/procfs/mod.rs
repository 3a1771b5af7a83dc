//! The files of `/proc/PID`, read as bytes.
//!
//! `procfs-core` has parsers for these files, but its `maps`, `status` and `stat` are read as
//! lines of UTF-8, and the names in them are any bytes: a process name is cut to 15 bytes in the
//! middle of a letter (prctl(2) `PR_SET_NAME`), and a mapped file may be called anything.

mod cpuinfo;
mod descriptors;
mod login;
mod maps;
mod meminfo;
mod namespaces;
mod program;
mod stat;
mod status;
mod threads;

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::file::read_limited;

pub use cpuinfo::{cpu_flags, instruction_sets};

pub use descriptors::{Descriptor, close_on_exec, descriptors, fdinfo, held_file, value_in_fdinfo};
pub use login::login_user;
pub(crate) use maps::any_mapping;
pub use maps::{
    Mapping, count_mappings, for_each_mapping, mapped_file, most_mappings, open_mapped,
};
pub use meminfo::MemInfo;
pub use namespaces::{Namespace, has_another_namespace, namespace_of};
pub use program::{arguments, is_of_go, program};
pub use stat::{Stat, TaskState};
pub use status::Status;
pub(crate) use status::{cpu_list, cpu_set};
pub(crate) use threads::is_dying;
pub use threads::{Waiting, children, children_of_thread, processes, threads, waiting};

/// `None` for the answers of `/proc/PID` about a process that has ended: ENOENT when its
/// directory is gone, ESRCH when it was reaped after a file of it was opened.
///
/// # Errors
/// All others.
pub fn gone_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A whole file of a process of at most `limit` bytes; `None` if the process has ended.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let read = File::open(path).and_then(|file| read_limited(&file, limit));
    gone_is_none(read).map_err(|error| about(path, &error))
}

/// The fuzz target `procfs`.
#[cfg(fuzzing)]
pub fn fuzz(text: &[u8]) {
    let _ = Stat::parse(text);
    let _ = descriptors::has_close_on_exec(text);
    let status = Status::from_text(text.to_vec());
    let _ = (
        status.state(),
        status.field("NSpid"),
        status.field("TracerPid"),
    );
    for line in text.split(|byte| *byte == b'\n') {
        let _ = Mapping::parse(line);
    }
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(crate) fn malformed(path: &Path) -> io::Error {
    let text = format!("{} is not in the kernel's format", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A number in ASCII, without spaces around it.
pub(crate) fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number in hexadecimal digits.
pub(crate) fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

/// The words of a line.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beyond_its_limit_is_an_error() {
        let path = Path::new("/proc/self/stat");
        let error = read(path, 4).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("/proc/self/stat: it is larger than 4 bytes"),
            "{error}"
        );
        assert!(read(path, 4096).unwrap().is_some());
        assert!(read(Path::new("/proc/0/stat"), 4096).unwrap().is_none());
    }
}
