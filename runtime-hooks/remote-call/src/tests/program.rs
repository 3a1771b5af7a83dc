//! Programs in C that a test has calls made by.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::until;

/// A program, its numbers, and a directory for both. It ends when this is dropped.
pub(super) struct Program {
    pub(super) child: Child,
    numbers: File,
    _directory: TempDir,
}

impl Program {
    /// Builds and starts a program that counts in the file that it is given.
    pub(super) fn counting(source: &str, arguments: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("numbers");
        let numbers = File::options()
            .create_new(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        numbers.set_len(4096).unwrap();
        let child = Command::new(build(&directory, source))
            .arg(&path)
            .args(arguments)
            .spawn()
            .unwrap();
        let program = Self {
            child,
            numbers,
            _directory: directory,
        };
        program.goes_on();
        program
    }

    /// Builds and starts a program that writes a line when it is ready.
    pub(super) fn waiting<A: AsRef<OsStr>>(
        source: &str,
        arguments: impl FnOnce(&TempDir) -> Vec<A>,
    ) -> Self {
        let directory = TempDir::new().unwrap();
        let mut child = Command::new(build(&directory, source))
            .args(arguments(&directory))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "up\n");
        Self {
            child,
            numbers: File::open("/dev/null").unwrap(),
            _directory: directory,
        }
    }

    pub(super) fn number(&self, index: u64) -> u64 {
        let mut bytes = [0; 8];
        self.numbers.read_exact_at(&mut bytes, index * 8).unwrap();
        u64::from_ne_bytes(bytes)
    }

    pub(super) fn set_number(&self, index: u64, number: u64) {
        let bytes = number.to_ne_bytes();
        self.numbers.write_all_at(&bytes, index * 8).unwrap();
    }

    /// It counts further.
    pub(super) fn goes_on(&self) {
        let before = self.number(0);
        until(|| self.number(0) > before);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build(directory: &TempDir, source: &str) -> PathBuf {
    let (text, program) = (directory.path().join("a.c"), directory.path().join("a"));
    std::fs::write(&text, source).unwrap();
    let compiler = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &text])
        .status()
        .unwrap();
    assert!(compiler.success());
    program
}
