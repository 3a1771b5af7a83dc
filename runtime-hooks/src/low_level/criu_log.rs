//! Copies CRIU's log of a failed operation to the log directory, and finds its errors.
//!
//! Callers delete the work directory after a failure (go-runc after every call, containerd with the
//! bundle), so stasis copies the log before it returns.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stasis_linux::directory::{Directory, Earlier};
use stasis_linux::file;

use crate::context::Context;

/// Logs are some MiB at CRIU's highest level.
const MAX_LOG_BYTES: u64 = 64 << 20;
/// What is kept of earlier failures: the newest logs, with no more bytes than that.
const MOST_LOGS: usize = 100;
const MOST_BYTES: u64 = 256 << 20;
/// CRIU probes the kernel first and logs missing features as errors, so the cause is one of the
/// last.
const ERRORS: usize = 6;

/// A log that was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptLog {
    /// The copy.
    pub path: PathBuf,
    /// The last lines that CRIU marked as errors, without their time stamps.
    pub errors: Vec<String>,
    /// Its last line.
    pub last: Option<String>,
}

/// The log that CRIU is about to write.
#[derive(Debug)]
pub(crate) struct CriuLog {
    path: PathBuf,
    /// What an earlier operation has left there, or podman, which makes an empty one beforehand.
    before: Option<Stamp>,
}

/// By what a file is known to be as it was. Its time is of its file system's clock, which may be a
/// file server's, so that it is compared with nothing else.
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
    /// The log `file_name` (`dump.log` or `restore.log`) in CRIU's work directory. To be called
    /// before CRIU is started.
    pub(crate) fn before(work: &Path, file_name: &str) -> Self {
        let path = work.join(file_name);
        let before = path.symlink_metadata();
        Self {
            before: before.ok().map(|file| Stamp::of(&file)),
            path,
        }
    }

    /// Keeps the log of a failed operation; that it cannot be kept must not hide the failure.
    pub(crate) fn keep(&self, context: &Context, container: &str) -> Option<KeptLog> {
        let time = context.began_text().replace(':', "");
        let log_dir = &context.settings.paths.log_dir;
        let kept = keep(self, log_dir, &format!("{container}-{time}"));
        kept.ok().flatten()
    }
}

/// Keeps a log as `log_dir/NAME-dump.log` or such. `None` if CRIU has written none.
fn keep(criu: &CriuLog, log_dir: &Path, name: &str) -> io::Result<Option<KeptLog>> {
    let log = match file::open(&criu.path) {
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
    let directory = Directory::make(log_dir, 0o700)?;
    let file_name = criu.path.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{name}-{file_name}");
    let mut kept = directory.log(&name, Earlier::Replaced)?;
    let path = log_dir.join(name);
    io::copy(&mut log.take(MAX_LOG_BYTES), &mut kept)?;
    // Too many are no reason to do without this one.
    let _ = remove_oldest(log_dir, MOST_LOGS, MOST_BYTES);
    let (errors, last) = errors_in(File::open(&path)?)?;
    Ok(Some(KeptLog { path, errors, last }))
}

/// Removes the oldest kept logs, but not the newest, until there are no more than this.
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

/// The last errors, and the last line. CRIU writes errors as `(00.012345) Error (criu/file.c:12):
/// text`, in a task's context with the pid after the time.
fn errors_in(log: impl Read) -> io::Result<(Vec<String>, Option<String>)> {
    let (mut errors, mut last) = (VecDeque::new(), None);
    let mut lines = BufReader::new(log);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if let Some(at) = text.find("Error (") {
            errors.push_back(text[at..].trim_end().to_owned());
            if errors.len() > ERRORS {
                errors.pop_front();
            }
        }
        last = Some(text.trim().to_owned());
        line.clear();
    }
    Ok((errors.into(), last))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "(00.001) Dumping\n\
        (00.002)   12: Error (criu/files-ext.c:96): Can't dump file 5 of that type\n\
        (00.003) Warn  (criu/x.c:1): Error is not the word here\n\
        (00.004) Error (criu/cr-dump.c:1781): Dumping FAILED.\n";

    use std::time::SystemTime;

    #[test]
    fn a_log_is_kept_with_its_errors() {
        let (work, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let criu = CriuLog::before(work.path(), "dump.log");
        let log = format!(
            "{}{LOG}",
            "(00.000) Error (criu/tun.c:85): tun: probe\n".repeat(4)
        );
        fs::write(work.path().join("dump.log"), &log).unwrap();
        let log_dir = logs.path().join("new");
        let kept = keep(&criu, &log_dir, "c1-T").unwrap().unwrap();
        assert_eq!(kept.path, log_dir.join("c1-T-dump.log"));
        assert_eq!(fs::read_to_string(&kept.path).unwrap(), log);
        assert_eq!(
            kept.errors[4..],
            [
                "Error (criu/files-ext.c:96): Can't dump file 5 of that type",
                "Error (criu/cr-dump.c:1781): Dumping FAILED.",
            ]
        );
        let last = "(00.004) Error (criu/cr-dump.c:1781): Dumping FAILED.";
        assert_eq!(kept.last.as_deref(), Some(last));
    }

    #[test]
    fn the_oldest_logs_go() {
        let logs = tempfile::tempdir().unwrap();
        let start = SystemTime::UNIX_EPOCH;
        for (age, name) in ["c1-4-dump.log", "c1-3-restore.log", "c2-2-dump.log"]
            .iter()
            .enumerate()
        {
            let log = File::create(logs.path().join(name)).unwrap();
            log.set_len(10).unwrap();
            let age = u64::try_from(age).unwrap();
            log.set_modified(start + std::time::Duration::from_secs(100 - age))
                .unwrap();
        }
        fs::write(logs.path().join("operations.log"), "kept").unwrap();
        let left = || fs::read_dir(logs.path()).unwrap().count();
        remove_oldest(logs.path(), 3, 30).unwrap();
        assert_eq!(left(), 4);
        remove_oldest(logs.path(), 3, 29).unwrap();
        assert!(left() == 3 && !logs.path().join("c2-2-dump.log").exists());
        remove_oldest(logs.path(), 1, 30).unwrap();
        assert_eq!(left(), 2);
        remove_oldest(logs.path(), 1, 0).unwrap();
        assert!(
            logs.path().join("c1-4-dump.log").exists(),
            "the newest stays"
        );
    }

    #[test]
    fn what_this_operation_did_not_write_is_not_kept() {
        let work = tempfile::tempdir().unwrap();
        let before = || CriuLog::before(work.path(), "dump.log");
        let kept = |criu: &CriuLog| keep(criu, work.path(), "c1").unwrap();
        assert_eq!(kept(&before()), None, "no file");
        let path = work.path().join("dump.log");
        fs::write(&path, "").unwrap();
        assert_eq!(kept(&before()), None, "podman's empty file");
        fs::write(&path, LOG).unwrap();
        assert_eq!(kept(&before()), None, "an earlier operation's file");
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(kept(&before()), None, "a fifo");
    }

    /// The file server's clock is behind, or ours was set back meanwhile.
    #[test]
    fn a_log_of_another_clock_is_kept() {
        let work = tempfile::tempdir().unwrap();
        let path = work.path().join("dump.log");
        fs::write(&path, "of an earlier operation").unwrap();
        let criu = CriuLog::before(work.path(), "dump.log");
        fs::write(&path, LOG).unwrap();
        let log = File::options().write(true).open(&path).unwrap();
        log.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let kept = keep(&criu, work.path(), "c1").unwrap().unwrap();
        assert_eq!(kept.errors.len(), 2);
    }
}
