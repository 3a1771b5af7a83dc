//! The output of a process to its terminal.
//!
//! The master side returns EIO while no process has the terminal open. That is not the end: systemd
//! and many an init program open the console for each line. Nor is it the end when the process has
//! ended and others still have the terminal open, as a background job of a shell has. So the output
//! ends with the process, once all of it is read.
//!
//! When the input has ended the terminal is hung up: its master side is closed, and its processes
//! get SIGHUP. A shell whose user has gone would stay for ever. containerd's own shim does both.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use containerd_shim::io::Pty;
use rustix::io::Errno;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

/// The time until a terminal that no process has open is read again: the reactor does not report
/// when a process opens it.
const CLOSED: Duration = Duration::from_millis(50);
/// The time without output after which a terminal's output ends, once its process has ended: the
/// last output goes through a work queue of the kernel (`tty_flip_buffer_push`), which may be late
/// on a busy machine. The shim waits so long only if other processes have the terminal open.
const QUIET: Duration = Duration::from_secs(1);

/// The state of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// Its process runs.
    Open,
    /// Its process has ended; the rest of the output is still to be read.
    ProcessEnded,
    /// Its input has ended.
    HungUp,
}

impl Line {
    /// Changes it, if it is open; returns whether it was changed.
    pub(super) fn becomes(&mut self, end: Self) -> bool {
        let was_open = *self == Self::Open;
        if was_open {
            *self = end;
        }
        was_open
    }
}

/// The shim's hold on a terminal, until it is hung up.
#[derive(Clone)]
pub(super) struct Console(Arc<Mutex<Option<Pty>>>);

impl Console {
    /// The hold on a terminal.
    pub(super) fn new(pty: Pty) -> Self {
        Self(Arc::new(Mutex::new(Some(pty))))
    }

    /// Changes its size, if it is not hung up.
    pub(super) fn resize(&self, size: Winsize) -> io::Result<()> {
        match &*self.pty() {
            Some(pty) => Ok(tcsetwinsize(pty, size)?),
            None => Ok(()),
        }
    }

    fn pty(&self) -> MutexGuard<'_, Option<Pty>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The input of a terminal. Drop it when the input has ended: that hangs the terminal up.
pub(super) struct TerminalInput {
    pty: Pty,
    console: Console,
    line: watch::Sender<Line>,
    /// An error is not the input's end: for a while no process may have the terminal open.
    has_failed: bool,
}

impl TerminalInput {
    /// The input of a terminal.
    pub(super) fn new(pty: Pty, console: Console, line: watch::Sender<Line>) -> Self {
        Self {
            pty,
            console,
            line,
            has_failed: false,
        }
    }
}

impl Drop for TerminalInput {
    fn drop(&mut self) {
        if !self.has_failed {
            drop(self.console.pty().take());
            self.line
                .send_if_modified(|line| line.becomes(Line::HungUp));
        }
    }
}

impl AsyncWrite for TerminalInput {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.pty).poll_write(context, bytes));
        self.has_failed |= written.is_err();
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pty).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pty).poll_shutdown(context)
    }
}

/// The output of a terminal, which ends with the terminal's process.
pub(super) struct TerminalOutput {
    pty: Pty,
    known: Known,
    pause: Option<Pin<Box<Sleep>>>,
}

/// The state of the terminal, as far as the output knows it.
enum Known {
    Open(Pin<Box<dyn Future<Output = Line> + Send>>),
    Ends(Line),
}

impl TerminalOutput {
    /// Returns the output of a terminal, whose state comes from `lines`.
    pub(super) fn new(pty: Pty, mut lines: watch::Receiver<Line>) -> Self {
        let end = async move {
            match lines.wait_for(|line| *line != Line::Open).await {
                Ok(line) => *line,
                // A sender that is gone reports no more states.
                Err(_) => Line::ProcessEnded,
            }
        };
        Self {
            pty,
            known: Known::Open(Box::pin(end)),
            pause: None,
        }
    }

    fn line(&mut self, context: &mut Context<'_>) -> Line {
        if let Known::Open(end) = &mut self.known {
            match end.as_mut().poll(context) {
                Poll::Ready(line) => {
                    self.known = Known::Ends(line);
                    // The pause of a terminal that no process had open, which may be over.
                    self.pause = None;
                }
                Poll::Pending => return Line::Open,
            }
        }
        match self.known {
            Known::Open(_) => Line::Open,
            Known::Ends(line) => line,
        }
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
        let ended = match this.line(context) {
            Line::HungUp => return Poll::Ready(Ok(())),
            line => line == Line::ProcessEnded,
        };
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
