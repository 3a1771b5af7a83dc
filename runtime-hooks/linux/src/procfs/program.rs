//! The program and the arguments of a process: `/proc/PID/exe` and `/proc/PID/cmdline`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use super::{gone_is_none, read};

/// The suffix that the kernel adds to the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";
/// More than the arguments of daemons take.
const MAX_BYTES: u64 = 1 << 20;
/// The type and the name of the note that Go's linker puts into a program, which comes first in it,
/// as all notes do (cmd/link/internal/ld/elf.go; elf(5)).
const GO_NOTE: &[u8] = b"\x04\0\0\0Go\0\0";
/// The part of the program, from its start, in which the note is.
const NOTES: u64 = 4096;

/// Returns the path of the program that a process executes, also if it has been replaced since;
/// `None` if the process has ended.
pub fn program(pid: i32) -> io::Result<Option<PathBuf>> {
    let target = gone_is_none(fs::read_link(format!("/proc/{pid}/exe")))?;
    Ok(target.map(|target| {
        let bytes = target.as_os_str().as_bytes();
        let path = bytes.strip_suffix(DELETED).unwrap_or(bytes);
        OsString::from_vec(path.to_owned()).into()
    }))
}

/// Returns whether a process executes a program that Go has linked; `None` if it has ended.
///
/// # Errors
/// An error of reading `/proc`, or the program.
pub fn is_of_go(pid: i32) -> io::Result<Option<bool>> {
    let Some(program) = gone_is_none(File::open(format!("/proc/{pid}/exe")))? else {
        return Ok(None);
    };
    let mut start = Vec::new();
    program.take(NOTES).read_to_end(&mut start)?;
    let is_note = |bytes: &[u8]| bytes == GO_NOTE;
    Ok(Some(start.windows(GO_NOTE.len()).any(is_note)))
}

/// Returns the command line, as far as the process has kept it; `None` if it has ended.
pub fn arguments(pid: i32) -> io::Result<Option<Vec<OsString>>> {
    let text = read(&PathBuf::from(format!("/proc/{pid}/cmdline")), MAX_BYTES)?;
    Ok(text.map(|text| {
        let each = text
            .strip_suffix(b"\0")
            .unwrap_or(&text)
            .split(|byte| *byte == 0);
        each.map(|word| OsString::from_vec(word.to_owned()))
            .collect()
    }))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::process::tests::{copy_cat, start};

    #[test]
    fn a_process_tells_its_program_also_when_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("waits");
        copy_cat(&copy);
        let mut command = Command::new(&copy);
        command.args(["-u", "-"]);
        let mut child = start(command);
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(program(pid).unwrap(), Some(copy.clone()));
        fs::remove_file(&copy).unwrap();
        assert_eq!(program(pid).unwrap(), Some(copy.clone()));
        let words = [copy.as_os_str(), "-u".as_ref(), "-".as_ref()];
        assert_eq!(arguments(pid).unwrap().unwrap(), words);
        assert_eq!(is_of_go(pid).unwrap(), Some(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(program(pid).unwrap(), None);
        assert_eq!(arguments(pid).unwrap(), None);
        assert_eq!(is_of_go(pid).unwrap(), None);
    }
}
