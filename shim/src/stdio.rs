//! A process's standard streams: what containerd asked for, what the runtime is given, and what
//! carries bytes between the two.

mod console;
mod logger;
mod target;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use containerd_shim::io::{IoTasks, Pty, Stdio as Wanted};
use rustix::fs::{Gid, Uid, fchown};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::reaper::Reaper;
use console::ConsoleSocket;
use logger::Logger;
use target::Target;

/// How long the streams of a deleted process may take to deliver what is still in them; as long as
/// the Go shim waits.
const DRAIN: Duration = Duration::from_secs(10);

/// What a process's streams belong to.
#[derive(Debug)]
pub(crate) struct Owner<'a> {
    /// The container, which loggers are told.
    pub(crate) container: &'a str,
    /// The namespace, which loggers are told.
    pub(crate) namespace: &'a str,
    /// Whom pipes belong to, so that a program without privileges can reopen them.
    pub(crate) uid: u32,
    /// The same, for the group.
    pub(crate) gid: u32,
}

/// The ends of a process's streams that the runtime is given.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Streams {
    /// Makes them the streams of a command; what is missing is empty.
    pub(crate) fn give_to(self, command: &mut Command) {
        let or_null = |stream: Option<OwnedFd>| stream.map_or_else(Stdio::null, Stdio::from);
        command.stdin(or_null(self.stdin));
        command.stdout(or_null(self.stdout));
        command.stderr(or_null(self.stderr));
    }
}

/// The other ends, until the process is there.
#[derive(Debug)]
pub(crate) struct Plumbing {
    wanted: Wanted,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    console: Option<ConsoleSocket>,
    logger: Option<Logger>,
}

/// The streams of a process that is there.
pub(crate) struct Io {
    fifos: IoTasks,
    copies: Vec<JoinHandle<()>>,
    console: Option<Pty>,
    logger: Option<Logger>,
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
/// Even a file is reached through a pipe of the shim: CRIU can restore a pipe that the runtime
/// hands it, and cannot dump a descriptor of a file outside the container.
pub(crate) async fn prepare(
    wanted: &Wanted,
    owner: &Owner<'_>,
    reaper: &Arc<Reaper>,
) -> Result<(Streams, Plumbing)> {
    let mut streams = Streams::default();
    let mut plumbing = Plumbing {
        wanted: wanted.clone(),
        stdin: None,
        stdout: None,
        stderr: None,
        console: None,
        logger: None,
    };
    let target = Target::parse(&wanted.stdout)?;
    if wanted.terminal {
        plumbing.console = Some(ConsoleSocket::open()?);
        if let Target::Logger(uri) = &target {
            let (logger, ends) = Logger::start(uri, owner, reaper).await?;
            plumbing.logger = Some(logger);
            plumbing.stdout = Some(ends.stdout);
        }
        return Ok((streams, plumbing));
    }
    if let Target::Logger(uri) = &target {
        let (logger, ends) = Logger::start(uri, owner, reaper).await?;
        plumbing.logger = Some(logger);
        streams.stdout = Some(ends.stdout);
        streams.stderr = Some(ends.stderr);
        return Ok((streams, plumbing));
    }
    if !wanted.stdin.is_empty() {
        let (theirs, ours) = owned_pipe(owner, End::Reader)?;
        (streams.stdin, plumbing.stdin) = (Some(theirs), Some(ours));
    }
    if !wanted.stdout.is_empty() {
        let (theirs, ours) = owned_pipe(owner, End::Writer)?;
        (streams.stdout, plumbing.stdout) = (Some(theirs), Some(ours));
    }
    if !wanted.stderr.is_empty() {
        let (theirs, ours) = owned_pipe(owner, End::Writer)?;
        (streams.stderr, plumbing.stderr) = (Some(theirs), Some(ours));
    }
    Ok((streams, plumbing))
}

/// Which end of a pipe the process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Reader,
    Writer,
}

/// A pipe: the process's end and ours.
fn owned_pipe(owner: &Owner<'_>, theirs: End) -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe().map_err(Error::io("make a pipe"))?;
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    let (theirs, ours) = match theirs {
        End::Reader => (reader, writer),
        End::Writer => (writer, reader),
    };
    if owner.uid != 0 || owner.gid != 0 {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        fchown(&theirs, Some(uid), Some(gid)).map_err(Error::io("give a pipe to io_uid"))?;
    }
    Ok((theirs, ours))
}

impl Plumbing {
    /// Where the runtime has to send the terminal.
    pub(crate) fn console(&self) -> Option<&Path> {
        self.console.as_ref().map(ConsoleSocket::path)
    }

    /// Connects the streams once the process is there.
    pub(crate) async fn connect(self) -> Result<Io> {
        let mut io = Io {
            fifos: IoTasks::default(),
            copies: Vec::new(),
            console: None,
            logger: self.logger,
        };
        if let Some(console) = self.console {
            let console = console.receive().await?;
            io.connect_console(console, &self.wanted, self.stdout)?;
            return Ok(io);
        }
        if let Some(stdin) = self.stdin {
            let to = pipe::Sender::from_owned_fd(stdin).map_err(Error::io("use a pipe"))?;
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
                    pipe::Receiver::from_owned_fd(stream).map_err(Error::io("use a pipe"))?;
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
        let console = Pty::new(console).map_err(failed)?;
        if !wanted.stdin.is_empty() {
            self.fifos
                .copy_from_fifo(&wanted.stdin, console.clone())
                .map_err(failed)?;
        }
        match logger {
            Some(logger) => {
                let mut to =
                    pipe::Sender::from_owned_fd(logger).map_err(Error::io("use a pipe"))?;
                let mut from = console.clone();
                self.copies.push(tokio::spawn(async move {
                    // The end of the terminal is an error (EIO).
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                }));
            }
            None if !wanted.stdout.is_empty() => self.copy_out(console.clone(), &wanted.stdout)?,
            None => {}
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

    /// Changes the size of the terminal; without one there is nothing to do.
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
        tcsetwinsize(console, size).map_err(Error::io("resize the terminal"))
    }

    /// Lets the process see the end of its input.
    pub(crate) fn close_input(&self) {
        self.fifos.close_input();
    }

    /// Delivers what the process wrote and lets go of everything.
    pub(crate) async fn finish(self) {
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
