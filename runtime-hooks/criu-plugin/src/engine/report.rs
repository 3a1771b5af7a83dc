//! How a dump or restore went: for CRIU's log, and for the engine.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use stasis_linux::file::{self, Access, Durability};
use stasis_memory_store::{MAX_REPORT_BYTES, Report};

use crate::criu;

/// Writes it to CRIU's log.
pub(crate) fn log(report: &Report) {
    criu::log_info(&format!(
        "{} areas of {} processes: {} bytes, {} of them zero, {} stored, {} reused; \
         copied in {:.2} s",
        report.areas,
        report.processes,
        report.bytes,
        report.zero_bytes,
        report.stored_bytes,
        report.reused_bytes,
        report.copy_seconds
    ));
    if let Some(why) = &report.not_reused {
        criu::log_info(&format!(
            "no memory of an earlier checkpoint is used again: {why}"
        ));
    }
    for left in &report.left_to_criu {
        criu::log_info(&format!("left to CRIU: {left}"));
    }
}

/// Changes the report that the engine has. CRIU and the userfaultfd daemon do this at the same time
/// when the end of a dump fails: neither may lose what the other one has written.
pub(crate) fn amend(path: Option<&Path>, change: impl FnOnce(&mut Report)) {
    let Some(known) = path else { return };
    let turn = wait_for_turn(known);
    if let Err(error) = &turn {
        criu::log_warning(&format!("cannot lock {}: {error}", known.display()));
    }
    let text = file::read(known, MAX_REPORT_BYTES).ok().flatten();
    let mut report = text
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    change(&mut report);
    write(path, &report);
}

/// Locks the directory of the report; the report itself is replaced with every change. The lock is
/// held for one change, and ends with its holder.
fn wait_for_turn(report: &Path) -> io::Result<File> {
    let directory = File::open(report.parent().unwrap_or(Path::new("/")))?;
    flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// Replaces the report in one go: the engine may read it at any time.
pub(crate) fn write(path: Option<&Path>, report: &Report) {
    let Some(path) = path else { return };
    let text = serde_json::to_vec(report).map_err(io::Error::from);
    let replace = |text: Vec<u8>| {
        // Nobody reads it once the machine has crashed.
        file::replace(path, &text, Access::Private, Durability::Volatile)
    };
    if let Err(error) = text.and_then(replace) {
        criu::log_warning(&format!("cannot write {}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn no_change_is_lost_when_two_change_the_report() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        let change = || {
            for _ in 0..500 {
                amend(Some(&path), |report| report.bytes += 1);
            }
        };
        thread::scope(|scope| {
            scope.spawn(change);
            scope.spawn(change);
        });
        let text = file::read(&path, MAX_REPORT_BYTES).unwrap().unwrap();
        let report: Report = serde_json::from_slice(&text).unwrap();
        assert_eq!(report.bytes, 1000);
    }
}
