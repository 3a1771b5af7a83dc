//! The process that checkpoints, or restores, one container of a group.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};

use stasis_engine::companions::Step;
use stasis_engine::error::kind::Kind;
use stasis_host::output::{file_for_output, output_in};

use super::Why;
use crate::member::{Ended, Said};

/// More bytes than its message on failure has.
const MOST_SAID: u64 = 1 << 20;

/// A container's process.
#[derive(Debug)]
pub(super) struct Process {
    child: process::Child,
    socket: UnixStream,
    /// Received bytes after the end of the last whole line.
    heard: Vec<u8>,
    /// Its standard error.
    errors: File,
    reached: Option<Step>,
    ended: Option<Ended>,
    /// It has withdrawn, or can report nothing more.
    is_to_end: bool,
    is_over: bool,
}

impl Process {
    /// Starts the process of a container by its command, apart from the terminal's signals: the
    /// parent decides for all.
    pub(super) fn start(container: &str, command: &mut Command) -> Result<Self, Why> {
        let mut start = || {
            let (socket, its_end) = UnixStream::pair()?;
            socket.set_nonblocking(true)?;
            let errors = file_for_output()?;
            let child = command
                .stdin(OwnedFd::from(its_end))
                .stdout(Stdio::null())
                .stderr(errors.try_clone()?)
                .process_group(0)
                .spawn()?;
            // The command keeps its descriptors open, and a dead process's socket would not end.
            command.stdin(Stdio::null()).stderr(Stdio::null());
            Ok((child, socket, errors))
        };
        let (child, socket, errors) = start().map_err(|source| Why::Start {
            container: container.to_owned(),
            source,
        })?;
        Ok(Self {
            child,
            socket,
            heard: Vec::new(),
            errors,
            reached: None,
            ended: None,
            is_to_end: false,
            is_over: false,
        })
    }

    pub(super) fn reached(&self) -> Option<Step> {
        self.reached
    }

    /// Returns whether its operation has ended, or is to end.
    pub(super) fn has_given_up(&self) -> bool {
        self.is_to_end || self.ended.is_some() || self.is_over
    }

    /// Returns whether the process has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns how its operation has ended; one without a report was killed, or did not begin.
    pub(super) fn into_ended(self) -> Ended {
        self.ended.unwrap_or_default()
    }

    /// Returns whether it was killed before it could report.
    pub(super) fn was_killed(&self) -> bool {
        let by_signal = |ended: &Ended| ended.kind.as_deref() == Some(Kind::CutOff.name());
        self.ended.as_ref().is_some_and(by_signal)
    }

    /// Sends it a word; a process that has ended need not receive it.
    pub(super) fn say(&self, word: u8) {
        let _ = (&self.socket).write_all(&[word]);
    }

    /// Reads its reports, and looks whether it has ended.
    pub(super) fn look(&mut self) -> io::Result<()> {
        // Before its reports are read, which are all there then.
        let status = if self.is_over {
            None
        } else {
            self.child.try_wait()?
        };
        self.read();
        if let Some(status) = status {
            self.is_over = true;
            if self.ended.is_none() {
                let kind = match status.code() {
                    Some(_) => Kind::LowLevelRuntime,
                    None => Kind::CutOff,
                };
                let said = output_in(&self.errors, MOST_SAID).unwrap_or_default();
                let error = match said.as_str() {
                    "" => format!("its process ended ({status})"),
                    said => said.to_owned(),
                };
                self.ended = Some(Ended::unknown(error, kind.name()));
            }
        }
        Ok(())
    }

    fn read(&mut self) {
        let mut some = [0; 4096];
        loop {
            match (&self.socket).read(&mut some) {
                Ok(0) => {
                    self.is_to_end = true;
                    break;
                }
                Ok(count) => self.heard.extend_from_slice(&some[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_to_end |= error.kind() != ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Said::Reached(step)) => self.reached = Some(step),
                Ok(Said::Ended(ended)) => self.ended = Some(ended),
                // A report of another version counts as its failure.
                Ok(Said::Withdrawn) | Err(_) => self.is_to_end = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_socket_of_a_process_that_has_ended_is_closed() {
        let mut command = Command::new("true");
        let mut process = Process::start("c1", &mut command).unwrap();
        process.socket.set_nonblocking(false).unwrap();
        let limit = Some(Duration::from_secs(20));
        process.socket.set_read_timeout(limit).unwrap();
        process.read();
        assert!(process.is_to_end);
        process.child.wait().unwrap();
    }
}
