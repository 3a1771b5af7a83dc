//! Programs of this machine: their paths, and the versions that they print.

mod version;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_config::is_program;
use stasis_host::environment;
pub(crate) use version::Version;

/// An answer to `--version` comes at once, and is a few lines.
const DEADLINE: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 4096;
/// The interval of looks for a program's end.
const LOOK: Duration = Duration::from_millis(5);

/// Returns a program's own name, whatever its file is called, and its version; `None` if unknown.
pub(crate) fn version_at(path: &Path) -> Option<(String, Version)> {
    let (_, answer) = run(path, "--version").ok()?;
    let (program, version) = version::read(&answer)?;
    Some((program.to_owned(), version))
}

/// Returns the version of the program of this name in `PATH`, if that is its own name.
pub(crate) fn version_of(name: &str) -> Option<Version> {
    let (program, version) = version_at(&in_path(name)?)?;
    (program == name).then_some(version)
}

/// Runs a program with this argument; returns its exit status. `None` if it does not end, or does
/// not exist.
pub(crate) fn exit_of(program: &Path, argument: &str) -> Option<ExitStatus> {
    let (status, _) = run(program, argument).ok()?;
    Some(status)
}

/// Finds the program of this name in `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = environment::path();
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(name));
    files.find(|file| is_program(file))
}

/// Runs a program and returns its exit status and its answer. A program that does not end is
/// killed, and no output after its end is waited for.
fn run(program: &Path, argument: &str) -> io::Result<(ExitStatus, String)> {
    let mut command = Command::new(program);
    environment::make(&mut command);
    command.arg(argument);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn()?;
    let status = end_within(DEADLINE, &mut child)?.ok_or(io::ErrorKind::TimedOut)?;
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // A process that it has left behind may hold the other end.
        rustix::io::ioctl_fionbio(&stdout, true)?;
        match stdout.take(MOST_BYTES).read_to_end(&mut answer) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok((status, String::from_utf8_lossy(&answer).into_owned()))
}

/// Waits for the end of a program, which is killed once the limit has passed: `None` then.
pub(crate) fn end_within(limit: Duration, child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if start.elapsed() < limit => sleep(LOOK),
            None => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stasis_linux::ProcessRef;

    use super::*;

    /// Writes a script by another process: programs that other tests start would inherit our
    /// writable descriptor for a moment, and execve(2) would refuse the script (ETXTBSY).
    fn script(directory: &Path, text: &str) -> PathBuf {
        let path = directory.join("runc");
        let write = r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#;
        let mut command = Command::new("sh");
        let written = command.args(["-c", write]).arg(&path).arg(text).status();
        assert!(written.unwrap().success());
        path
    }

    #[test]
    fn an_answer_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = script(directory.path(), "yes runc version | head -c 20000; exit 3");
        let ask = |path: &Path| run(path, "--version").map(|(_, answer)| answer);
        assert_eq!(ask(&path).unwrap().len(), 4096);
        // The process that is left behind is not waited for.
        let leaves = r#"echo runc version 1.3.6; sleep 60 & echo $! >"$0.left""#;
        let path = script(directory.path(), leaves);
        assert_eq!(ask(&path).unwrap(), "runc version 1.3.6\n");
        let left = fs::read_to_string(directory.path().join("runc.left")).unwrap();
        let left = ProcessRef::open(left.trim().parse().unwrap()).unwrap();
        left.unwrap().kill().unwrap();
        assert!(ask(Path::new("/nowhere")).is_err());
    }
}
