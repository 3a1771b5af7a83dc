//! The file that an OCI runtime writes for `--pid-file`.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::file::read_limited;
use crate::procfs::number;

/// A pid has at most seven digits.
const MAX_BYTES: u64 = 64;

/// The pid in a file.
///
/// # Errors
/// An I/O error, or [`io::ErrorKind::InvalidData`] for a file that holds something else.
pub fn read(path: &Path) -> io::Result<u32> {
    let text = read_limited(&File::open(path)?, MAX_BYTES)?;
    let pid = number(text.trim_ascii()).filter(|pid| *pid > 0);
    pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it holds no pid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pid_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("init.pid");
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        for (text, expected) in [("4711", Some(4711)), ("4711\n", Some(4711)), ("", None)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).ok(), expected, "{text:?}");
        }
        for text in ["0", "-1", "one", &" ".repeat(65)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
