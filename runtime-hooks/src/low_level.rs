//! The low-level runtime (runc or crun) as a child process of a GPU operation.
//!
//! It is given the caller's own arguments, standard streams and descriptors. For a checkpoint it gets no
//! parent-death signal: killing it in the middle of a dump would kill CRIU with parasite code
//! inside the workload.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use stasis_config::{Flavor, LowLevel};

use crate::criu_log::KeptLog;
use crate::criu_plugins::Environment;
use crate::invocation::RestoreMode;
use crate::memory_dump::MemoryFailure;
use crate::parent_death::die_with_us;

/// How the directory begins in which CRIU sees all cgroups.
const CGROUP_YARD: &str = ".criu.cgyard.";

/// A failed run of the low-level runtime.
#[derive(Debug)]
pub struct LowLevelFailure {
    /// Its file name and verb, e.g. "runc checkpoint".
    pub program: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard error, if that was ours to read.
    pub stderr: String,
    /// What our CRIU plugin says.
    pub memory: MemoryFailure,
    /// CRIU's log, if there was one.
    pub log: Option<KeptLog>,
    /// The image directory, if there is next to no room in it.
    pub full: Option<PathBuf>,
}

/// Where the low-level runtime keeps its containers unless `--root` says otherwise; the defaults
/// of runc and crun for root.
#[must_use]
pub fn default_root(flavor: Flavor) -> PathBuf {
    match flavor {
        Flavor::Runc => "/run/runc".into(),
        Flavor::Crun => "/run/crun".into(),
    }
}

/// Its file name, for messages.
#[must_use]
pub fn name(low_level: &LowLevel) -> String {
    let name = low_level
        .path
        .file_name()
        .unwrap_or(low_level.path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Runs it to its end with its output captured, in a process group of its own: a Ctrl-C on the
/// caller's terminal must reach us alone, since CRIU must not be interrupted.
///
/// # Errors
/// What the kernel said.
pub fn run(low_level: &LowLevel, args: &[OsString], criu: Environment<'_>) -> io::Result<Output> {
    let mut command = command(low_level, args);
    criu.give(&mut command);
    command
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .output()
}

/// Starts it with our standard streams, which are those of the container at a restore.
///
/// # Errors
/// What the kernel said.
pub fn start(
    low_level: &LowLevel,
    args: &[OsString],
    criu: Environment<'_>,
    mode: RestoreMode,
) -> io::Result<Child> {
    let mut command = command(low_level, args);
    criu.give(&mut command);
    // Alone it would bring up a container whose GPU state nobody puts back. As the parent of one, it stays.
    if mode == RestoreMode::Detached {
        die_with_us(&mut command);
    }
    command.spawn()
}

/// Runs it to its end with our standard streams.
///
/// # Errors
/// What the kernel said.
pub fn run_inherited(low_level: &LowLevel, args: &[OsString]) -> io::Result<ExitStatus> {
    command(low_level, args).status()
}

/// Where runc mounts the container's root file system for the time of a restore
/// (libcontainer/criu_linux.go), in the directory that its `delete` removes.
fn restore_mount(root: &Path, id: &str) -> PathBuf {
    root.join(id).join("criu-root")
}

/// Whether a restore is under way, or was cut off: then `delete` must not be called.
#[must_use]
pub fn is_restoring(root: &Path, id: &str) -> bool {
    restore_mount(root, id).exists()
}

/// Takes away the mount that a restore left which was cut off. runc's `delete` does not, and removes
/// every file of the container's root file system through it.
///
/// # Errors
/// What the kernel said: then `delete` must not be called.
pub fn detach_restore_mount(root: &Path, id: &str) -> io::Result<()> {
    let mount = restore_mount(root, id);
    loop {
        match umount2(&mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            // There may be one above the other.
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes away what CRIU mounts in its work directory for the time of a restore (criu/cgroup.c), and leaves there if it is killed.
pub fn clear_work(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(CGROUP_YARD) {
            let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
            let _ = umount2(&entry.path(), flags);
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Gives a container the resources that a file names (OCI runtime specification, "resources").
///
/// # Errors
/// What the kernel or the low-level runtime said.
pub fn update(low_level: &LowLevel, root: &Path, id: &str, resources: &Path) -> io::Result<()> {
    let args: [&OsStr; 6] = [
        "--root".as_ref(),
        root.as_os_str(),
        "update".as_ref(),
        "--resources".as_ref(),
        resources.as_os_str(),
        id.as_ref(),
    ];
    let args = args.map(OsStr::to_owned);
    let output = command(low_level, &args).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!(
        "{} update: {said}",
        name(low_level)
    )))
}

/// Removes a container with everything that runs in it, without a word: the operation that gives
/// it up has its own error to tell. No restore of it may be under way.
pub fn delete(low_level: &LowLevel, root: &Path, id: &str) {
    if detach_restore_mount(root, id).is_err() {
        return;
    }
    let args: [&OsStr; 5] = [
        "--root".as_ref(),
        root.as_os_str(),
        "delete".as_ref(),
        "--force".as_ref(),
        id.as_ref(),
    ];
    let _ = Command::new(&low_level.path)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn command(low_level: &LowLevel, args: &[OsString]) -> Command {
    let mut command = Command::new(&low_level.path);
    command.args(args);
    command
}

impl fmt::Display for LowLevelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended with {}", self.program, self.status)?;
        // Warnings come first; the error that ended it is the last thing that it says.
        if let Some(line) = self.stderr.lines().rfind(|line| !line.trim().is_empty()) {
            write!(f, ": {}", line.trim())?;
        }
        if let Some(memory) = &self.memory.error {
            write!(f, "; bulk memory: {memory}")?;
        }
        if let Some(why) = &self.memory.not_returned {
            write!(f, "; memory could not be given back: {why}")?;
        }
        if let Some(log) = &self.log {
            if !log.errors.is_empty() {
                write!(f, "; criu said: {}", log.errors.join(" | "))?;
            }
            write!(f, "; its log is kept as {}", log.path.display())?;
        }
        if let Some(directory) = &self.full {
            write!(f, "; the file system of {} is full", directory.display())?;
        }
        Ok(())
    }
}
