//! A failed run of the low-level runtime, with what CRIU reported.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::context::Context;
use crate::low_level;
use crate::low_level::criu_log::{CriuLog, FoundLog};
use crate::low_level::restore::Ended;
use crate::low_level::watch::Hung;
use crate::request::RestoreRequest;

/// A failed run of the low-level runtime.
#[derive(Debug)]
pub struct LowLevelFailure {
    /// Its file name and verb, e.g. "runc checkpoint".
    pub program: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Whether it had to be ended, and what it was last seen doing.
    pub hung: Option<Hung>,
    /// Its standard error, if we captured it.
    pub stderr: String,
    /// CRIU's log, if there was one.
    pub log: Option<FoundLog>,
    /// The settings by which CRIU may have written its log elsewhere, or none.
    pub(crate) astray: Option<String>,
    /// The image directory, if its file system is almost full.
    pub full: Option<PathBuf>,
}

impl LowLevelFailure {
    /// The failure of a restore. Keeps CRIU's log.
    pub(crate) fn of_restore(
        context: &Context,
        options: &RestoreRequest,
        log: &CriuLog,
        ended: &Ended,
    ) -> Self {
        Self {
            program: format!("{} restore", low_level::name(&context.low_level)),
            status: ended.status,
            hung: ended.hung.clone(),
            // During a restore standard error is the container's: the caller already has it.
            stderr: String::new(),
            log: log.found(context, &options.id),
            astray: log.astray(),
            full: None,
        }
    }
}

impl fmt::Display for LowLevelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended with {}", self.program, self.status)?;
        if let Some(hung) = &self.hung {
            write!(f, ": {hung}")?;
        }
        // Warnings come first; the error that ended the program is its last line.
        if let Some(line) = self.stderr.lines().rfind(|line| !line.trim().is_empty()) {
            write!(f, ": {}", line.trim())?;
        }
        if let Some(log) = &self.log {
            if !log.errors.is_empty() {
                write!(f, "; CRIU: {}", log.errors.join(" | "))?;
            }
            let is_told = log.errors.is_empty() || self.hung.is_some();
            if let Some(last) = log.last.as_ref().filter(|_| is_told) {
                write!(f, "; the last that it logged: {last}")?;
            }
            let path = log.path.display();
            match &log.not_kept {
                None => write!(f, "; its log is kept as {path}")?,
                Some(why) => write!(f, "; its log {path} could not be kept {why}")?,
            }
        } else if let Some(astray) = &self.astray {
            write!(f, "; CRIU has written no log that was found: {astray}")?;
        }
        if let Some(directory) = &self.full {
            write!(f, "; the file system of {} is full", directory.display())?;
        }
        Ok(())
    }
}
