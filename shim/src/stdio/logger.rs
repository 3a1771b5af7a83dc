//! A logging program (`binary://`). It reads the container's output from descriptors 3 and 4, and
//! writes to descriptor 5, or closes it, when it is ready (containerd runtime/v2/README.md,
//! "Logging").

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::child::reaper::Reaper;
use crate::child::{Child, spawn_detached};
use crate::error::{Error, Result};
use crate::stdio::pipes::{End, Owner, owned_pipe};
use crate::stdio::target::{LoggerUri, Ready};

/// How long a logger may take to be ready.
const READY: Duration = Duration::from_secs(10);
/// How long a logger may take to end by itself after its input.
const BY_ITSELF: Duration = Duration::from_secs(1);
/// How long a logger may take that was told to end; containerd's shim waits as long.
const TOLD: Duration = Duration::from_secs(12);

/// A logger that runs.
#[derive(Debug)]
pub(super) struct Logger {
    child: Child,
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
        let (ready, ready_writer) = io::pipe().map_err(Error::cannot("make a pipe"))?;
        let mut command = Command::new(&uri.program);
        command.args(&uri.arguments);
        // Nothing else, as containerd's shim.
        command.env_clear();
        command.env("CONTAINER_ID", owner.id);
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
        let child = spawn_detached(reaper, command)
            .map_err(Error::cannot(format!("start the logger {program}")))?;
        let logger = Self { child };
        let mut ready =
            pipe::Receiver::from_owned_fd(ready.into()).map_err(Error::cannot("use a pipe"))?;
        match timeout(READY, ready.read_u8()).await {
            Ok(Err(_)) if uri.ready == Ready::Byte => {
                logger.signal(Signal::KILL);
                Err(Error::FailedPrecondition(format!(
                    "the logger {program} ended before it was ready"
                )))
            }
            Ok(_) => Ok((logger, Ends { stdout, stderr })),
            Err(_) => {
                logger.signal(Signal::KILL);
                Err(Error::FailedPrecondition(format!(
                    "the logger {program} was not ready within {} s and was killed",
                    READY.as_secs()
                )))
            }
        }
    }

    /// Waits until the logger has ended. The caller has closed its input; a logger that does not
    /// end then gets SIGTERM, and later SIGKILL.
    pub(super) async fn finish(self) {
        let Ok(process) = self.child.process.try_clone() else {
            return;
        };
        let mut ended = pin!(self.child.wait());
        for (wait, then) in [(BY_ITSELF, Signal::TERM), (TOLD, Signal::KILL)] {
            if timeout(wait, &mut ended).await.is_ok() {
                return;
            }
            // Fails only if it has ended.
            let _ = pidfd_send_signal(&process, then);
        }
    }

    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.child.process, signal);
    }
}
