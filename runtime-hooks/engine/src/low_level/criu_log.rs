//! Finds the errors in CRIU's log of a failed operation, and copies it to the log directory.
//!
//! Callers delete the work directory after a failure (go-runc after every call, containerd with the
//! bundle), so stasis copies the log before it returns.
//!
//! CRIU first probes the kernel, and logs missing features as errors (criu/kerndat.c): if the
//! probes have ended, the errors before that are not the cause.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stasis_config::Flavor;
use stasis_linux::directory::{Directory, Earlier};
use stasis_linux::file;

use crate::container::criu_configuration::file_of;
use crate::container::spec::Spec;
use crate::context::Context;
use crate::low_level::criu_settings::CriuSettings;

/// Logs are some MiB at CRIU's highest level.
const MAX_LOG_BYTES: u64 = 64 << 20;
/// The newest logs of earlier failures are kept, up to this number and this many bytes.
const MOST_LOGS: usize = 100;
const MOST_BYTES: u64 = 256 << 20;
/// The cause is one of the last errors; errors of its callers and of cleanup follow it.
const ERRORS: usize = 6;
/// The beginnings of lines that CRIU writes when it knows the kernel: after all probes, or in the
/// place of them (criu/kerndat.c), and above the first line on the tasks (criu/cr-dump.c).
const KERNEL_KNOWN: [&str; 3] = ["files stat: ", "Loaded kdat cache ", "====="];
/// Settings for places of CRIU's.
const PLACES: [&str; 3] = ["images-dir", "work-dir", "log-file"];
/// An error that CRIU tolerates wherever it is logged: it gets no more open files (criu/util.c,
/// `rlimit_unlimit_nofile`).
const DONE_WITHOUT: &str = "rlimit: ";

/// The log of a failed operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLog {
    /// The copy, or CRIU's own file if there is no copy.
    pub path: PathBuf,
    /// Why there is no copy.
    pub not_kept: Option<String>,
    /// The last lines that CRIU marked as errors, without their time stamps.
    pub errors: Vec<String>,
    /// Its last line.
    pub last: Option<String>,
}

/// The log that CRIU is about to write.
#[derive(Debug)]
pub(crate) struct CriuLog {
    path: PathBuf,
    /// `dump.log` or `restore.log`, whatever CRIU calls it.
    name: &'static str,
    settings: CriuSettings,
    /// An earlier operation's log there, or an empty one that podman makes beforehand.
    before: Option<Stamp>,
}

/// Identifies an unchanged file. Its time is of its file system's clock, which may be a file
/// server's, so it is compared with nothing else.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl CriuLog {
    /// The log `name` (`dump.log` or `restore.log`) in CRIU's work directory, or where CRIU's
    /// settings for this specification put it. Must be called before CRIU is started.
    pub(crate) fn before(
        flavor: Flavor,
        spec: Option<Spec>,
        work: &Path,
        name: &'static str,
    ) -> Self {
        Self::with(
            CriuSettings::of_request(flavor, file_of(spec).as_deref()),
            work,
            name,
        )
    }

    fn with(settings: CriuSettings, work: &Path, name: &'static str) -> Self {
        let work = settings.value("work-dir").map_or(work, Path::new);
        let path = work.join(settings.value("log-file").unwrap_or(name));
        let before = path.symlink_metadata();
        Self {
            before: before.ok().map(|file| Stamp::of(&file)),
            path,
            name,
            settings,
        }
    }

    /// Returns the settings by which CRIU may have written its log elsewhere, if there are any.
    pub(crate) fn astray(&self) -> Option<String> {
        let places = PLACES.iter().filter_map(|name| {
            let value = self.settings.value(name)?;
            Some(format!("{name} {value}"))
        });
        let places = places.collect::<Vec<_>>().join(", ");
        let path = self.settings.path().display();
        (!places.is_empty()).then(|| format!("{path} has {places}"))
    }

    /// Finds the errors of a failed operation, and keeps the log; `None` if CRIU has written none.
    pub(crate) fn found(&self, context: &Context, container: &str) -> Option<FoundLog> {
        let time = context.began_text().replace(':', "");
        let log_dir = &context.settings.paths.log_dir;
        find(self, log_dir, &format!("{container}-{time}"))
            .ok()
            .flatten()
    }
}

/// Keeps a log as `log_dir/NAME-dump.log` or `-restore.log`. If that fails, only its errors are
/// kept. `None` if CRIU has written none.
fn find(criu: &CriuLog, log_dir: &Path, name: &str) -> io::Result<Option<FoundLog>> {
    let mut log = match file::open(&criu.path) {
        Ok(Some(log)) => log,
        Ok(None) => return Ok(None),
        // CRIU writes a regular file.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = log.metadata()?;
    if found.len() == 0 || criu.before == Some(Stamp::of(&found)) {
        return Ok(None);
    }
    let (errors, last) = errors_in((&log).take(MAX_LOG_BYTES))?;
    log.rewind()?;
    let (path, not_kept) = match keep(log, log_dir, &format!("{name}-{}", criu.name)) {
        Ok(copy) => (copy, None),
        Err(error) => (
            criu.path.clone(),
            Some(format!("in {}: {error}", log_dir.display())),
        ),
    };
    Ok(Some(FoundLog {
        path,
        not_kept,
        errors,
        last,
    }))
}

fn keep(log: File, log_dir: &Path, name: &str) -> io::Result<PathBuf> {
    let directory = Directory::make(log_dir, 0o700)?;
    let mut kept = directory.log(name, Earlier::Replaced)?;
    let path = log_dir.join(name);
    if let Err(error) = io::copy(&mut log.take(MAX_LOG_BYTES), &mut kept) {
        let _ = file::remove(&path);
        return Err(error);
    }
    // Too many logs are no reason to give this one up.
    let _ = remove_oldest(log_dir, MOST_LOGS, MOST_BYTES);
    Ok(path)
}

/// Removes the oldest kept logs, never the newest, down to these limits.
fn remove_oldest(log_dir: &Path, most_logs: usize, most_bytes: u64) -> io::Result<()> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(log_dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with("-dump.log") || name.ends_with("-restore.log") {
            let log = entry.metadata()?;
            logs.push((log.modified()?, log.len(), entry.path()));
        }
    }
    logs.sort();
    let mut bytes = 0_u64;
    for (newer, (_, length, path)) in logs.iter().rev().enumerate() {
        bytes = bytes.saturating_add(*length);
        if newer > 0 && (newer >= most_logs || bytes > most_bytes) {
            file::remove(path)?;
        }
    }
    Ok(())
}

/// The last errors that may be the cause, and the last line. CRIU writes errors as `(00.012345)
/// Error (criu/file.c:12): text`, in a task's context with the pid after the time.
fn errors_in(log: impl Read) -> io::Result<(Vec<String>, Option<String>)> {
    let (mut errors, mut last) = (VecDeque::new(), None);
    let mut knows_kernel = false;
    let mut lines = BufReader::new(log);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let said = text.split_once(") ").map_or("", |(_, said)| said);
        if !knows_kernel && KERNEL_KNOWN.iter().any(|known| said.starts_with(known)) {
            knows_kernel = true;
            errors.clear();
        }
        let error = text.find("Error (").map(|at| text[at..].trim_end());
        if let Some(error) = error.filter(|error| !is_done_without(error)) {
            errors.push_back(error.to_owned());
            if errors.len() > ERRORS {
                errors.pop_front();
            }
        }
        last = Some(text.trim().to_owned());
        line.clear();
    }
    Ok((errors.into(), last))
}

fn is_done_without(error: &str) -> bool {
    let said = error.split_once("): ").map_or("", |(_, said)| said);
    said.starts_with(DONE_WITHOUT)
}

#[cfg(test)]
mod tests;
