//! A logging program (`binary://`): it reads the container's output from descriptors 3 and 4 and
//! closes descriptor 5 when it is ready (containerd runtime/v2/README.md, "Logging").

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::target::LoggerUri;
use super::{End, Owner, owned_pipe};
use crate::command::{Running, start_independent};
use crate::error::{Error, Result};
use crate::reaper::Reaper;

/// How long a logger may take to begin.
const READY: Duration = Duration::from_secs(10);
/// How long a logger may take to end once its input has; as long as the Go shim waits.
const END: Duration = Duration::from_secs(12);

/// A logger that runs.
#[derive(Debug)]
pub(super) struct Logger {
    running: Running,
}

/// The pipes that lead to a logger.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Logger {
    /// Starts a logger and waits until it is ready.
    pub(super) async fn start(
        uri: &LoggerUri,
        owner: &Owner<'_>,
        reaper: &Arc<Reaper>,
    ) -> Result<(Self, Ends)> {
        let program = uri.program.display();
        let (stdout, stdout_reader) = owned_pipe(owner, End::Writer)?;
        let (stderr, stderr_reader) = owned_pipe(owner, End::Writer)?;
        let (ready, ready_writer) = io::pipe().map_err(Error::io("make a pipe"))?;
        let mut command = Command::new(&uri.program);
        command.args(&uri.arguments);
        command.env("CONTAINER_ID", owner.container);
        command.env("CONTAINER_NAMESPACE", owner.namespace);
        let mapping = |parent_fd, child_fd| FdMapping {
            parent_fd,
            child_fd,
        };
        command
            .fd_mappings(vec![
                mapping(stdout_reader, 3),
                mapping(stderr_reader, 4),
                mapping(ready_writer.into(), 5),
            ])
            .map_err(|error| Error::Invalid(format!("cannot start {program}: {error}")))?;
        let running = start_independent(reaper, command)
            .map_err(Error::io(format!("start the logger {program}")))?;
        let logger = Self { running };
        let mut ready =
            pipe::Receiver::from_owned_fd(ready.into()).map_err(Error::io("use a pipe"))?;
        match tokio::time::timeout(READY, ready.read_u8()).await {
            // It closed its end or wrote to it.
            Ok(_) => Ok((logger, Ends { stdout, stderr })),
            Err(_) => {
                logger.kill();
                Err(Error::NotNow(format!(
                    "the logger {program} was not ready within {} s and was killed",
                    READY.as_secs()
                )))
            }
        }
    }

    /// Waits until it has written everything; its input has ended.
    pub(super) async fn finish(self) {
        let pid = self.running.pid;
        if tokio::time::timeout(END, self.running.finish())
            .await
            .is_err()
        {
            kill(pid);
        }
    }

    fn kill(&self) {
        kill(self.running.pid);
    }
}

/// Not reaped yet, since whoever asks for its end still waits: the pid is the logger's.
fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::KILL);
    }
}
