//! Child processes: starts programs, collects what they print, and waits for them through the one
//! reaper that the shim has.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use stasis_linux::open_files::keep_callers_limit;
use stasis_linux::pdeathsig::kill_with_parent;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use self::reaper::{Exit, PendingExit, Reaper};

pub(crate) mod environment;
pub(crate) mod reaper;

/// The most that is kept of what a program prints. A runtime also writes its errors to its log.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Child {
    /// Its pid.
    pub(crate) pid: u32,
    /// Its pidfd.
    pub(crate) process: OwnedFd,
    exit: PendingExit,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct ChildOutput {
    /// How it ended.
    pub(crate) exit: Exit,
    /// The captured standard output.
    pub(crate) stdout: Vec<u8>,
    /// The captured standard error.
    pub(crate) stderr: Vec<u8>,
}

/// Starts a program with the streams of the command. The kernel kills it if the shim dies: a
/// runtime whose shim was killed must not go on making a container that no shim manages.
/// containerd's own shim sets the same signal (go-runc, `PdeathSignal`). `stasis-runtime` clears it
/// while it must not be interrupted.
///
/// The caller must be on the thread that lives as long as the shim: the kernel sends the
/// parent-death signal when the thread ends that started the child (prctl(2)).
pub(crate) fn spawn(reaper: &Arc<Reaper>, mut command: Command) -> io::Result<Child> {
    kill_with_parent(&mut command);
    spawn_detached(reaper, command)
}

/// Starts a program that outlives the shim.
pub(crate) fn spawn_detached(reaper: &Arc<Reaper>, mut command: Command) -> io::Result<Child> {
    keep_callers_limit(&mut command);
    let watch = reaper.watch();
    let what = line_of(&command);
    let pid = command.spawn()?.id();
    // It cannot have been reaped yet: the reaper runs between two steps of this thread.
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = pidfd_open(raw.ok_or(io::ErrorKind::InvalidData)?, PidfdFlags::empty())?;
    Ok(Child {
        pid,
        process,
        exit: watch.exit_of(pid, what),
        stdout: None,
        stderr: None,
    })
}

/// The command line, without what is changed in the environment.
fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("{:?}", words.join(" "))
}

/// Starts a program, as [`spawn`] does, and captures its output.
pub(crate) fn spawn_captured(reaper: &Arc<Reaper>, mut command: Command) -> io::Result<Child> {
    let (stdout, stdout_writer) = io::pipe()?;
    let (stderr, stderr_writer) = io::pipe()?;
    command.stdin(Stdio::null());
    command.stdout(stdout_writer).stderr(stderr_writer);
    let child = spawn(reaper, command)?;
    Ok(Child {
        stdout: Some(receiver(stdout)?),
        stderr: Some(receiver(stderr)?),
        ..child
    })
}

impl Child {
    /// Waits until the program has ended.
    pub(crate) async fn wait(self) -> ChildOutput {
        let (stdout, stderr) = tokio::join!(read(self.stdout), read(self.stderr));
        ChildOutput {
            exit: self.exit.wait().await,
            stdout,
            stderr,
        }
    }
}

fn receiver(reader: PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(reader.into())
}

/// A read error leaves a message shorter; the exit status decides whether the program failed.
async fn read(stream: Option<pipe::Receiver>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    bytes
}
