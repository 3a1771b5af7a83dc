//! The programs that stasis and containerd run, and their versions as they say themselves.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use stasis_config::Settings;

use super::advisories::{self, Finding, Verdict};
use super::version::{self, Program, Version};
use crate::host::environment;
use crate::low_level::criu_version::CriuVersion;
use crate::preflight::capabilities::Criu;

/// An answer to `--version` comes at once, and is a few lines.
const DEADLINE: Duration = Duration::from_secs(5);
const MOST_BYTES: u64 = 4096;

/// An installed program.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// Where it is.
    pub path: PathBuf,
    /// What it is, and which version; `None` if it does not say so.
    #[serde(flatten)]
    pub version: Option<Known>,
}

/// What a program has said of itself.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Known {
    /// What it is, whatever its file is called.
    pub program: Program,
    /// Its version.
    pub version: Version,
}

/// The low-level runtime of the settings, and the containerd of `PATH`.
pub(super) fn installed(settings: &Settings) -> Vec<Installed> {
    let runtime = settings.runtime.resolve().ok().map(|found| found.path);
    let programs = runtime.into_iter().chain(in_path("containerd"));
    let ask = |path: PathBuf| {
        let answer = ask(&path).ok();
        let known = answer.and_then(|answer| version::read(&answer));
        Installed {
            path,
            version: known.map(|(program, version)| Known { program, version }),
        }
    };
    programs.map(ask).collect()
}

/// The version of the program of this name in `PATH`, if it is the one that is meant.
pub(crate) fn version_of(name: &str, program: Program) -> Option<Version> {
    let answer = answer_of(name)?;
    let (found, version) = version::read(&answer)?;
    (found == program).then_some(version)
}

/// What the program of this name in `PATH` answers to `--version`.
pub(crate) fn answer_of(name: &str) -> Option<String> {
    ask(&in_path(name)?).ok()
}

/// How the program of this name in `PATH` ends with this argument. `None` if it does not, or is not
/// there.
pub(crate) fn exit_of(name: &str, argument: &str) -> Option<ExitStatus> {
    let (status, _) = run(&in_path(name)?, argument).ok()?;
    Some(status)
}

/// What is to be said of them, and of CRIU.
pub(super) fn findings(programs: &[Installed], criu: &Criu) -> Vec<Finding> {
    let mut findings = Vec::new();
    for installed in programs {
        if let Some(Known { program, version }) = installed.version {
            let path = installed.path.display().to_string();
            findings.extend(advisories::of(program, version, &path));
        }
    }
    if let Some(version) = criu.version()
        && version < CriuVersion::WITH_HOOKS
    {
        findings.push(Finding {
            id: "criu-version".to_owned(),
            verdict: Verdict::Warning,
            evidence: format!("CRIU {version} has no hooks for GPU contents"),
            remedy: format!("install CRIU {} or newer", CriuVersion::WITH_HOOKS),
        });
    }
    findings
}

pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = environment::path();
    let mut files = std::env::split_paths(&path).map(|directory| directory.join(name));
    files.find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    let metadata = fs::metadata(file);
    metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// What a program answers to `--version`.
fn ask(program: &Path) -> io::Result<String> {
    let (_, answer) = run(program, "--version")?;
    Ok(answer)
}

/// How a program ends, and what it answers: one that does not end is killed, and no more is read
/// than is there then.
fn run(program: &Path, argument: &str) -> io::Result<(ExitStatus, String)> {
    let mut command = Command::new(program);
    environment::make(&mut command);
    command.arg(argument);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn()?;
    let ended = wait(&mut child);
    if ended.is_err() {
        // It may have ended just now.
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = ended?;
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // Something that it has left behind may hold the other end.
        rustix::io::ioctl_fionbio(&stdout, true)?;
        match stdout.take(MOST_BYTES).read_to_end(&mut answer) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok((status, String::from_utf8_lossy(&answer).into_owned()))
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(Duration::from_millis(5));
    }
}

impl fmt::Display for Installed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.version {
            Some(Known { program, version }) => write!(f, "{program} {version}: {path}"),
            None => write!(f, "of an unknown version: {path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use stasis_linux::ProcessRef;

    use super::*;

    /// Written by a process of its own: a descriptor of ours that can write to it would be a moment
    /// in what other tests start, and execve(2) refuse it (ETXTBSY).
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
        assert_eq!(ask(&path).unwrap().len(), 4096);
        // Nobody waits for what is left behind.
        let leaves = r#"echo runc version 1.3.6; sleep 60 & echo $! >"$0.left""#;
        let path = script(directory.path(), leaves);
        assert_eq!(ask(&path).unwrap(), "runc version 1.3.6\n");
        let left = fs::read_to_string(directory.path().join("runc.left")).unwrap();
        let left = ProcessRef::open(left.trim().parse().unwrap()).unwrap();
        left.unwrap().kill().unwrap();
        assert!(ask(Path::new("/nowhere")).is_err());
    }
}
