//! Starts programs and waits for them through the reaper.

use std::io::{self, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::reaper::{Exit, Pending, Reaper};

/// No runtime says more than this that anybody wants to read; its log has the rest.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its pid.
    pub(crate) pid: u32,
    exit: Pending,
    output: Option<pipe::Receiver>,
    errors: Option<pipe::Receiver>,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How.
    pub(crate) exit: Exit,
    /// What it wrote to standard output.
    pub(crate) output: Vec<u8>,
    /// What it wrote to standard error.
    pub(crate) errors: Vec<u8>,
}

/// Starts a program whose streams are set already.
///
/// Must be called on the thread that lives as long as the shim: the kernel counts the end of the
/// starting thread as the parent's death (prctl(2)).
pub(crate) fn start(reaper: &Arc<Reaper>, mut command: Command) -> io::Result<Running> {
    die_with_the_shim(&mut command);
    start_independent(reaper, command)
}

/// Starts a program that outlives the shim.
pub(crate) fn start_independent(reaper: &Arc<Reaper>, mut command: Command) -> io::Result<Running> {
    let watch = reaper.watch();
    let pid = command.spawn()?.id();
    Ok(Running {
        pid,
        exit: watch.exit_of(pid),
        output: None,
        errors: None,
    })
}

/// Starts a program and keeps what it writes.
pub(crate) fn start_captured(reaper: &Arc<Reaper>, mut command: Command) -> io::Result<Running> {
    let (output, output_writer) = io::pipe()?;
    let (errors, errors_writer) = io::pipe()?;
    command.stdin(Stdio::null());
    command.stdout(output_writer).stderr(errors_writer);
    let running = start(reaper, command)?;
    Ok(Running {
        output: Some(receiver(output)?),
        errors: Some(receiver(errors)?),
        ..running
    })
}

impl Running {
    /// Waits for its end.
    pub(crate) async fn finish(self) -> Finished {
        let (output, errors) = tokio::join!(read(self.output), read(self.errors));
        Finished {
            exit: self.exit.wait().await,
            output,
            errors,
        }
    }
}

fn receiver(reader: PipeReader) -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(reader.into())
}

/// What cannot be read is missing from a message, nothing else.
async fn read(stream: Option<pipe::Receiver>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    bytes
}

/// A runtime whose shim was killed must not go on making a container that nobody knows; containerd's
/// own shim sets the same signal. The engine clears it for the time in which it must not be cut off.
#[expect(unsafe_code, reason = "the only way to act between fork and exec")]
fn die_with_the_shim(command: &mut Command) {
    let shim = getpid();
    // SAFETY: the closure runs in the forked child and makes system calls only, which neither
    // allocate nor take a lock, so it is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The signal does not come for a shim that died before it was asked for (prctl(2)).
            if getppid() == Some(shim) {
                Ok(())
            } else {
                Err(io::ErrorKind::Interrupted.into())
            }
        });
    }
}

/// The first line of what a program wrote, if it wrote any.
pub(crate) fn first_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
