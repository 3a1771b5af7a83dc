//! The low-level runtime (runc or crun) as a child process of a GPU operation.
//!
//! It gets the caller's own arguments, standard streams and descriptors, and an environment that
//! stasis makes. For a checkpoint it gets no parent-death signal: killing it in the middle of a
//! dump would kill CRIU with parasite code inside the workload.

pub mod at_restore;
pub mod criu_log;
pub(crate) mod criu_plugins;
pub mod criu_program;
pub mod criu_settings;
pub(crate) mod criu_stats;
pub mod criu_version;
pub(crate) mod forward_signals;
pub mod hook;
mod network_lock;
pub mod post_dump;
pub(crate) mod restore;
pub(crate) mod watch;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use stasis_config::{Flavor, LowLevel};
use stasis_host::environment;
use stasis_linux::open_files::keep_callers_limit;
use stasis_linux::pdeathsig::kill_with_parent;

use crate::low_level::at_restore::AtRestore;
use crate::low_level::criu_plugins::Environment;
use crate::low_level::watch::{Hung, Victims, Watch};
use crate::operation::Operation;
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

/// Returns its file name, for messages.
#[must_use]
pub fn name(low_level: &LowLevel) -> String {
    let name = low_level
        .path
        .file_name()
        .unwrap_or(low_level.path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its output, as far as it was captured.
    pub(crate) output: Output,
    /// Whether it had to be ended.
    pub(crate) hung: Option<Hung>,
}

/// Runs a dump to its end with its output captured, in a process group of its own: a Ctrl-C on the
/// caller's terminal must reach stasis alone, since CRIU must not be interrupted. A dump that does
/// nothing for longer than `limit` is ended.
pub(crate) fn dump(
    low_level: &LowLevel,
    args: &[OsString],
    criu: Environment<'_>,
    limit: Duration,
    operation: &Operation,
) -> io::Result<Ran> {
    let mut command = command(low_level, args);
    criu_program::give(&mut command);
    criu.give(&mut command);
    command.stdin(Stdio::inherit()).process_group(0);
    let child = spawn_captured(&mut command)?;
    operation.has_started(&child);
    capture(child, limit, Victims::WithChildren)
}

/// Returns its answer to a question about a container.
///
/// # Errors
/// An error of starting or awaiting the process; [`io::ErrorKind::TimedOut`] if it did nothing for
/// longer than `limit`, and was ended.
pub fn answer(low_level: &LowLevel, args: &[OsString], limit: Duration) -> io::Result<Output> {
    let mut command = command(low_level, args);
    let child = spawn_captured(command.stdin(Stdio::null()))?;
    let Ran { output, hung } = capture(child, limit, Victims::All)?;
    hung.map_or(Ok(output), |hung| Err(timed_out(hung)))
}

fn timed_out(hung: Hung) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, hung)
}

fn spawn_captured(command: &mut Command) -> io::Result<Child> {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Waits for the end of a program, under watch. Returns its output.
fn capture(mut child: Child, limit: Duration, victims: Victims) -> io::Result<Ran> {
    let mut watch = Watch::of(&child, limit, victims);
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let mut hung = watch.wait().err();
    let mut written = |receiver: Receiver<Vec<u8>>| loop {
        // Its children may still write.
        match receiver.recv_timeout(watch.interval()) {
            Err(RecvTimeoutError::Timeout) if hung.is_none() => hung = watch.look(),
            result => break result.unwrap_or_default(),
        }
    };
    let (stdout, stderr) = (written(stdout), written(stderr));
    let status = child.wait()?;
    let output = Output {
        status,
        stdout,
        stderr,
    };
    Ok(Ran { output, hung })
}

/// Reads on a thread of its own: a process with the other end may hang.
fn read(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    if let Some(mut pipe) = pipe {
        // Without a thread the sender is dropped, and nothing is read.
        let _ = thread::Builder::new().spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            sender.send(text)
        });
    }
    receiver
}

/// Starts it with our standard streams, which the container gets at a restore. `criu` is the
/// environment for CRIU, if it needs one, and `set_up` the configuration of CRIU's script.
fn start(
    low_level: &LowLevel,
    args: &[OsString],
    criu: Option<Environment<'_>>,
    set_up: Option<&AtRestore>,
    mode: RestoreMode,
) -> io::Result<Child> {
    let mut command = command(low_level, args);
    criu_program::give(&mut command);
    if let Some(set_up) = set_up {
        set_up.give(&mut command);
    }
    if let Some(criu) = criu {
        criu.give(&mut command);
    }
    // If stasis is killed, runc alone would start a container whose GPU state is never restored. As
    // the parent of an attached container it stays.
    if mode == RestoreMode::Detached {
        kill_with_parent(&mut command);
    }
    command.spawn()
}

/// Runs it to its end with our standard streams.
///
/// # Errors
/// An error of starting or awaiting the process; [`io::ErrorKind::TimedOut`] if it did nothing for
/// longer than `limit`, and was ended.
pub(crate) fn run_inherited(
    low_level: &LowLevel,
    args: &[OsString],
    limit: Duration,
) -> io::Result<ExitStatus> {
    watched(&mut command(low_level, args), limit)
}

fn watched(command: &mut Command, limit: Duration) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let watched = Watch::of(&child, limit, Victims::All).wait();
    let status = child.wait()?;
    watched.map(|()| status).map_err(timed_out)
}

/// The directory's name in runc and crun.
const RESTORE_MOUNT: &str = "criu-root";

/// Where runc mounts the container's root file system for the time of a restore
/// (libcontainer/criu_linux.go), in the directory that its `delete` removes.
fn restore_mount(root: &Path, id: &str) -> PathBuf {
    root.join(id).join(RESTORE_MOUNT)
}

/// Returns whether a restore is under way, or was interrupted: then `delete` must not be called.
pub(crate) fn is_restoring(root: &Path, id: &str) -> bool {
    restore_mount(root, id).exists()
}

/// Unmounts the root file system that a killed restore left mounted. runc's `delete` does not, and
/// removes every file of the container's root file system through the mount.
///
/// # Errors
/// The error of umount2(2): then `delete` must not be called.
pub(crate) fn detach_restore_mount(root: &Path, id: &str) -> io::Result<()> {
    detach(&restore_mount(root, id))
}

/// Unmounts the root file system that a crun which was killed in a restore left mounted in the
/// bundle, and removes the directory: otherwise the next restore from the bundle fails
/// (src/libcrun/criu.c: its mkdir fails), and removing the bundle would remove every file of the
/// container's root file system through the mount.
pub(crate) fn clear_bundle(low_level: &LowLevel, bundle: &Path) {
    let mount = bundle.join(RESTORE_MOUNT);
    if low_level.flavor == Flavor::Crun && detach(&mount).is_ok() {
        let _ = fs::remove_dir(mount);
    }
}

fn detach(mount: &Path) -> io::Result<()> {
    loop {
        match umount2(mount, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            // Mounts may be stacked.
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes a container with everything that runs in it, and ignores errors: the calling operation
/// reports its own. No restore of the container may be under way. The runtime is ended if it does
/// nothing for longer than `limit`.
pub fn delete(low_level: &LowLevel, root: &Path, id: &str, limit: Duration) {
    if detach_restore_mount(root, id).is_err() {
        return;
    }
    let mut command = command(low_level, &forced_delete(root, id));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let _ = watched(command.stderr(Stdio::null()), limit);
}

/// The arguments that remove a container with all that runs in it.
pub(crate) fn forced_delete<'a>(root: &'a Path, id: &'a str) -> [&'a OsStr; 5] {
    let [option, verb, force] = ["--root", "delete", "--force"].map(OsStr::new);
    [option, root.as_os_str(), verb, force, OsStr::new(id)]
}

fn command(low_level: &LowLevel, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(&low_level.path);
    command.args(args);
    environment::make(&mut command);
    keep_callers_limit(&mut command);
    command
}

#[cfg(test)]
mod tests;
