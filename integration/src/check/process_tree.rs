//! Finds programs below the ones that bring them into a test host.

use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::unistd::Pid;

/// Waits for a process with this name that a child has become or has started; `None` if the child
/// ends before.
///
/// # Errors
/// There is none within 30 s.
pub fn descendant(child: &Child, name: &str) -> Result<Option<Pid>> {
    descendant_of(child, &[name])
}

/// As [`descendant`], of a process with one of these names.
///
/// # Errors
/// There is none within 30 s.
pub fn descendant_of(child: &Child, names: &[&str]) -> Result<Option<Pid>> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
                continue;
            };
            let found = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if names.contains(&found.trim()) && descends_from(pid, child.id()) {
                return Ok(Some(Pid::from_raw(pid)));
            }
        }
        if has_ended(child) {
            return Ok(None);
        }
        sleep(Duration::from_millis(5));
    }
    bail!("none of {names:?} below process {}", child.id())
}

/// Returns all processes of the machine.
pub(crate) fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw)
}

/// Returns a process of this name that an operation has started, if there is one.
#[must_use]
pub fn started_by(operation: Pid, name: &str) -> Option<Pid> {
    processes().find(|pid| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let first = arguments.split(|byte| *byte == 0).next();
        first == Some(name.as_bytes()) && parent(*pid) == Some(operation)
    })
}

/// Returns the parent of a process.
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    Some(Pid::from_raw(stat(pid)?.split(' ').nth(1)?.parse().ok()?))
}

fn descends_from(mut pid: i32, ancestor: u32) -> bool {
    while pid > 1 {
        if u32::try_from(pid) == Ok(ancestor) {
            return true;
        }
        let Some(parent) = stat(pid).and_then(|stat| stat.split(' ').nth(1)?.parse().ok()) else {
            return false;
        };
        pid = parent;
    }
    false
}

/// Whether a child has ended, which leaves it to be waited for.
#[must_use]
pub fn has_ended(child: &Child) -> bool {
    stat(child.id()).is_none_or(|stat| stat.starts_with('Z'))
}

/// Reads the fields of `/proc/PID/stat` after the name: state, parent, ...
fn stat(pid: impl std::fmt::Display) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}
