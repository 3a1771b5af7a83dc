//! The standard streams of a process: the fifos, files and loggers that the caller named, the pipes
//! or the terminal that the runtime hands to the process, and the copies between them.

mod console;
mod logger;
pub(crate) mod pipes;
mod target;
mod terminal;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use containerd_shim::io::{IoTasks, Pty, Stdio as Wanted};
use rustix::termios::Winsize;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::console::ConsoleSocket;
use self::logger::Logger;
use self::pipes::{End, Owner, owned_pipe};
use self::target::Target;
use self::terminal::{Console, Line, TerminalInput, TerminalOutput};
use crate::child::reaper::Reaper;
use crate::error::{Error, Result};
use crate::run_blocking::run_blocking;

/// The time that the streams of a deleted process may take to deliver their last output;
/// containerd's shim waits as long.
const DRAIN: Duration = Duration::from_secs(10);

/// The ends of a process's streams that the runtime hands to the process.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Streams {
    /// Makes them the streams of a command. A missing stream becomes `/dev/null`.
    pub(crate) fn give_to(self, command: &mut Command) {
        let or_null = |stream: Option<OwnedFd>| stream.map_or_else(Stdio::null, Stdio::from);
        command.stdin(or_null(self.stdin));
        command.stdout(or_null(self.stdout));
        command.stderr(or_null(self.stderr));
    }
}

/// The shim's ends of a process's streams, until the process exists.
#[derive(Debug, Default)]
pub(crate) struct PendingIo {
    wanted: Wanted,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    console: Option<ConsoleSocket>,
    logger: Option<Logger>,
}

/// The shim's ends of a process's streams, connected to the targets that the caller named.
pub(crate) struct Io {
    fifos: IoTasks,
    copies: Vec<JoinHandle<()>>,
    console: Option<Console>,
    logger: Option<Logger>,
    /// The state of the terminal, if there is one.
    line: watch::Sender<Line>,
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io")
            .field("console", &self.console.is_some())
            .field("logger", &self.logger)
            .finish_non_exhaustive()
    }
}

/// Prepares the streams of a process that is about to be started.
///
/// Output to a file goes through a pipe of the shim, too: CRIU cannot dump a descriptor of a file
/// outside the container, and can restore a pipe that the runtime hands to it.
pub(crate) async fn prepare(
    wanted: &Wanted,
    owner: &Owner<'_>,
    reaper: &Arc<Reaper>,
) -> Result<(Streams, PendingIo)> {
    let wanted = &with_both_in_a_file(wanted);
    let mut streams = Streams::default();
    let mut pending_io = PendingIo {
        wanted: wanted.clone(),
        ..PendingIo::default()
    };
    let named = wanted.stdout.clone();
    let target = run_blocking(move || Target::parse(&named)).await?;
    if wanted.terminal {
        pending_io.console = Some(ConsoleSocket::open()?);
    }
    if let Target::Logger(uri) = &target {
        let (logger, ends) = Logger::start(uri, owner, reaper).await?;
        pending_io.logger = Some(logger);
        if wanted.terminal {
            pending_io.stdout = Some(ends.stdout);
        } else {
            (streams.stdout, streams.stderr) = (Some(ends.stdout), Some(ends.stderr));
        }
    } else if !wanted.terminal {
        let pipe = |named: &str, theirs| match named.is_empty() {
            true => Ok((None, None)),
            false => owned_pipe(owner, theirs).map(|(theirs, ours)| (Some(theirs), Some(ours))),
        };
        (streams.stdin, pending_io.stdin) = pipe(&wanted.stdin, End::Reader)?;
        (streams.stdout, pending_io.stdout) = pipe(&wanted.stdout, End::Writer)?;
        (streams.stderr, pending_io.stderr) = pipe(&wanted.stderr, End::Writer)?;
    }
    Ok((streams, pending_io))
}

/// With `file://` for standard output alone, containerd's own shim writes both into the file.
fn with_both_in_a_file(wanted: &Wanted) -> Wanted {
    let mut wanted = wanted.clone();
    if wanted.stdout.starts_with("file://") && wanted.stderr.is_empty() {
        wanted.stderr.clone_from(&wanted.stdout);
    }
    wanted
}

impl PendingIo {
    /// The socket to which the runtime sends the terminal.
    pub(crate) fn console(&self) -> Option<&Path> {
        self.console.as_ref().map(ConsoleSocket::path)
    }

    /// Connects the streams once the process exists.
    pub(crate) async fn connect(mut self) -> Result<Io> {
        let console = match self.console.take() {
            Some(console) => Some(console.receive().await?),
            None => None,
        };
        run_blocking(move || self.connect_now(console)).await
    }

    fn connect_now(self, console: Option<File>) -> Result<Io> {
        let mut io = Io {
            fifos: IoTasks::default(),
            copies: Vec::new(),
            console: None,
            logger: self.logger,
            line: watch::Sender::new(Line::Open),
        };
        if let Some(console) = console {
            io.connect_console(console, &self.wanted, self.stdout)?;
            return Ok(io);
        }
        if let Some(stdin) = self.stdin {
            let to = pipe::Sender::from_owned_fd(stdin).map_err(Error::cannot("use a pipe"))?;
            io.fifos
                .copy_from_fifo(&self.wanted.stdin, to)
                .map_err(|error| Error::Invalid(format!("cannot read standard input: {error}")))?;
        }
        let outputs = [
            (self.stdout, &self.wanted.stdout),
            (self.stderr, &self.wanted.stderr),
        ];
        for (stream, wanted) in outputs {
            if let Some(stream) = stream {
                let from =
                    pipe::Receiver::from_owned_fd(stream).map_err(Error::cannot("use a pipe"))?;
                io.copy_out(from, wanted)?;
            }
        }
        Ok(io)
    }
}

impl Io {
    fn connect_console(
        &mut self,
        console: File,
        wanted: &Wanted,
        logger: Option<OwnedFd>,
    ) -> Result<()> {
        let failed = |error| Error::Invalid(format!("cannot use the terminal: {error}"));
        let pty = Pty::new(console).map_err(failed)?;
        let mut from = TerminalOutput::new(pty.clone(), self.line.subscribe());
        let console = Console::new(pty.clone());
        if !wanted.stdin.is_empty() {
            let to = TerminalInput::new(pty, console.clone(), self.line.clone());
            self.fifos
                .copy_from_fifo(&wanted.stdin, to)
                .map_err(failed)?;
        }
        match logger {
            Some(logger) => {
                let mut to =
                    pipe::Sender::from_owned_fd(logger).map_err(Error::cannot("use a pipe"))?;
                self.copies.push(tokio::spawn(async move {
                    // Fails if the logger has ended.
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                }));
            }
            None if !wanted.stdout.is_empty() => self.copy_out(from, &wanted.stdout)?,
            // The shim has to read it, or the process waits once the terminal's buffer is full.
            None => self.copies.push(tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
            })),
        }
        self.console = Some(console);
        Ok(())
    }

    fn copy_out<R>(&mut self, from: R, wanted: &str) -> Result<()>
    where
        R: tokio::io::AsyncRead + Send + Unpin + 'static,
    {
        match Target::parse(wanted)? {
            Target::Fifo(path) => self
                .fifos
                .copy_to_fifo(from, &path)
                .map_err(|error| Error::Invalid(format!("cannot write {path}: {error}"))),
            Target::File(path) => {
                let file = target::open_for_appending(&path)?;
                self.copies.push(tokio::spawn(target::append(from, file)));
                Ok(())
            }
            Target::Logger(_) => Err(Error::Invalid(format!(
                "standard error cannot have a logger of its own: {wanted}"
            ))),
        }
    }

    /// Changes the size of the terminal. Does nothing for a process without one.
    pub(crate) fn resize(&self, width: u32, height: u32) -> Result<()> {
        let Some(console) = &self.console else {
            return Ok(());
        };
        let cells = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        let size = Winsize {
            ws_row: cells(height),
            ws_col: cells(width),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let resized = console.resize(size);
        resized.map_err(Error::cannot("resize the terminal"))
    }

    /// Reports that the process has ended: its terminal, which others may have open, ends with it.
    pub(crate) fn process_exited(&self) {
        self.line
            .send_if_modified(|line| line.becomes(Line::ProcessEnded));
    }

    /// Closes the process's standard input.
    pub(crate) fn close_input(&self) {
        self.fifos.close_input();
    }

    /// Delivers the rest of the process's output, and closes everything.
    pub(crate) async fn finish(self) {
        self.process_exited();
        drop(self.console);
        let copies = async {
            for mut copy in self.copies {
                if tokio::time::timeout(DRAIN, &mut copy).await.is_err() {
                    copy.abort();
                }
            }
        };
        tokio::join!(self.fifos.shutdown(), copies);
        if let Some(logger) = self.logger {
            logger.finish().await;
        }
    }
}
