//! Processes that `exec` started in a container.
//!
//! runc and crun put them into the container's cgroup. CRIU stops them for the time of a dump
//! (criu/seize.c, `seize_cgroup_tree`), does not dump them, since they do not descend from the
//! container's init (`collect_children`), and resumes them. They end with the container's pid
//! namespace.

use stasis_config::BlockerKind;
use stasis_linux::Snapshot;
use stasis_linux::snapshot::Member;

use crate::preflight::blocker::{Finding, OF_THE_DRIVER};
use crate::request::AfterDump;

/// Returns the findings for a checkpoint that ends the container: one for each such process.
#[must_use]
pub fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let finding = |session: &Member| Finding {
        kind: BlockerKind::ExecSession,
        pid: session.pid,
        name: session.name.clone(),
        evidence: "it does not descend from the container's init".to_owned(),
    };
    snapshot.exec_sessions().map(finding).collect()
}

/// Removes CRIU's blockers of processes that it does not dump. The driver saves their GPU state
/// like that of others.
pub(crate) fn retain_blockers(found: &mut Vec<Finding>, snapshot: &Snapshot) {
    let is_dumped = |pid| snapshot.exec_sessions().all(|session| session.pid != pid);
    found.retain(|finding| OF_THE_DRIVER.contains(&finding.kind) || is_dumped(finding.pid));
}

/// Returns a note for `operations.log` about each such process.
pub(crate) fn notes(snapshot: &Snapshot, after: AfterDump) -> Vec<String> {
    let fate = match after {
        AfterDump::Exit => "ends with the container",
        AfterDump::LeaveRunning => "goes on with the container",
    };
    let note = |Member { pid, name, .. }: &Member| {
        format!("process {pid} ({name}) was started by exec: it is not in the image, and {fate}")
    };
    snapshot.exec_sessions().map(note).collect()
}
