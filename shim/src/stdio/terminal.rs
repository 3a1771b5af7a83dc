//! What a process writes to its terminal.
//!
//! The master side returns EIO while nobody has the terminal open. That is not the end: systemd and
//! many an init program open the console for each line. Nor is it the end when the process has
//! ended and others still have the terminal open, as a background job of a shell has. So the output
//! ends with the process, once all that was written is read. containerd's own shim does the same.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use containerd_shim::io::Pty;
use rustix::io::Errno;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

/// How long until a terminal is read again that nobody has open: the reactor does not tell when
/// somebody opens it.
const CLOSED: Duration = Duration::from_millis(50);
/// How long a terminal has nothing to say after its process has ended until its output ends: what
/// was written last goes through a work queue of the kernel (`tty_flip_buffer_push`).
const QUIET: Duration = Duration::from_millis(100);

/// The output of a terminal, which ends with the terminal's process.
pub(super) struct TerminalOutput {
    pty: Pty,
    process: Process,
    pause: Option<Pin<Box<Sleep>>>,
}

enum Process {
    Runs(Pin<Box<dyn Future<Output = ()> + Send>>),
    HasEnded,
}

impl TerminalOutput {
    /// The output of a terminal. Its process has ended when `exited` says so.
    pub(super) fn new(pty: Pty, mut exited: watch::Receiver<bool>) -> Self {
        let exit = async move {
            // A sender that is gone has nothing to say any more.
            let _ = exited.wait_for(|exited| *exited).await;
        };
        Self {
            pty,
            process: Process::Runs(Box::pin(exit)),
            pause: None,
        }
    }

    fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        if let Process::Runs(exit) = &mut self.process
            && exit.as_mut().poll(context).is_ready()
        {
            self.process = Process::HasEnded;
        }
        matches!(self.process, Process::HasEnded)
    }

    fn poll_pause(&mut self, context: &mut Context<'_>, length: Duration) -> Poll<()> {
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(length)));
        ready!(pause.as_mut().poll(context));
        self.pause = None;
        Poll::Ready(())
    }
}

impl AsyncRead for TerminalOutput {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let ended = this.has_ended(context);
        loop {
            match Pin::new(&mut this.pty).poll_read(context, buffer) {
                Poll::Ready(Err(error)) if Errno::from_io_error(&error) == Some(Errno::IO) => {
                    if ended {
                        return Poll::Ready(Ok(()));
                    }
                    ready!(this.poll_pause(context, CLOSED));
                }
                Poll::Ready(read) => {
                    this.pause = None;
                    return Poll::Ready(read);
                }
                Poll::Pending if ended => {
                    ready!(this.poll_pause(context, QUIET));
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
