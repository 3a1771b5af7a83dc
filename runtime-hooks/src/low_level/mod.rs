//! The low-level runtime (runc or crun) as a child process of a GPU operation.
//!
//! It gets the caller's own arguments, standard streams and descriptors. For a checkpoint it gets
//! no parent-death signal: killing it in the middle of a dump would kill CRIU with parasite
//! code inside the workload.

pub mod criu_log;
pub mod criu_plugins;
pub(crate) mod criu_stats;
pub mod criu_version;
pub(crate) mod forward_signals;
pub(crate) mod restore;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use stasis_config::{Flavor, LowLevel};
use stasis_linux::open_files::keep_callers_limit;
use stasis_linux::pdeathsig::kill_with_parent;

use crate::low_level::criu_plugins::Environment;
use crate::request::RestoreMode;

/// Where the low-level runtime keeps its containers without `--root`; the defaults of runc and
/// crun for root.
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
/// An error of starting or awaiting the process.
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

/// Starts it with our standard streams, which are those of the container at a restore. `criu` is
/// the environment for CRIU, if it needs one.
///
/// # Errors
/// An error of starting or awaiting the process.
pub fn start(
    low_level: &LowLevel,
    args: &[OsString],
    criu: Option<Environment<'_>>,
    mode: RestoreMode,
) -> io::Result<Child> {
    let mut command = command(low_level, args);
    if let Some(criu) = criu {
        criu.give(&mut command);
    }
    // If stasis is killed, runc alone would start a container whose GPU state nobody restores. As
    // the parent of an attached container it stays.
    if mode == RestoreMode::Detached {
        kill_with_parent(&mut command);
    }
    command.spawn()
}

/// Runs it to its end with our standard streams.
///
/// # Errors
/// An error of starting or awaiting the process.
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

/// Unmounts the root file system that a killed restore left mounted. runc's `delete` does not, and
/// removes every file of the container's root file system through the mount.
///
/// # Errors
/// The error of umount2(2): then `delete` must not be called.
pub fn detach_restore_mount(root: &Path, id: &str) -> io::Result<()> {
    let mount = restore_mount(root, id);
    loop {
        match umount2(&mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            // Mounts may be stacked.
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives a container the resources that a file names (OCI runtime specification, "resources").
///
/// # Errors
/// An error of starting the low-level runtime, or its own error message.
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
    let error = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{} update: {}",
        name(low_level),
        error.trim()
    )))
}

/// Removes a container with everything that runs in it, and ignores errors: the calling operation
/// reports its own. No restore of the container may be under way.
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
    let _ = command(low_level, &args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn command(low_level: &LowLevel, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(&low_level.path);
    command.args(args);
    keep_callers_limit(&mut command);
    command
}
