//! Namespaces that a process of a container has made for itself (`unshare`, a sandbox).
//!
//! CRIU dumps several mount and network namespaces, and of every other kind one: that of the
//! container's first process, unless that is the machine's (criu/namespaces.c, `generate_ns_id`).

use std::io;

use stasis_config::BlockerKind;
use stasis_linux::Snapshot;
use stasis_linux::procfs::namespace_of;
use stasis_linux::snapshot::Origin;

use crate::preflight::blocker::Finding;

/// Everything but `CLONE_SUBNS` of CRIU, by the names below `/proc/PID/ns`.
const SHARED: [(&str, &str); 6] = [
    ("pid", "of pids"),
    ("user", "of users"),
    ("ipc", "of IPC"),
    ("uts", "of host names"),
    ("cgroup", "of cgroups"),
    ("time", "of clocks"),
];

/// Finds the processes that CRIU dumps, and that have a namespace that neither `init` has nor we:
/// CRIU is started by us.
pub(crate) fn findings(init: i32, snapshot: &Snapshot) -> io::Result<Vec<Finding>> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let mut found = Vec::new();
    for (kind, what) in SHARED {
        let inits = namespace_of(init, kind)?;
        if inits.is_none() {
            continue;
        }
        let known = [inits, namespace_of(own, kind)?];
        let dumped = snapshot.members().iter();
        for member in dumped.filter(|member| member.origin == Origin::Init) {
            let theirs = namespace_of(member.pid, kind)?;
            // Checked last: the pid was still the process's own.
            if theirs.is_some() && !known.contains(&theirs) && member.open()?.is_some() {
                found.push(Finding {
                    kind: BlockerKind::NestedNamespace,
                    pid: member.pid,
                    name: member.name.clone(),
                    evidence: format!("it has a namespace {what} of its own"),
                });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use stasis_linux::ProcessRef;

    use super::*;

    #[test]
    fn a_namespace_of_mounts_is_anyones_and_all_others_are_shared() {
        let script = "echo; exec sleep 60";
        let mut init = Command::new("sleep").arg("60").spawn().unwrap();
        let pid_of = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        for (option, expected) in [("--mount", 0), ("--net", 0), ("--uts", 1), ("--ipc", 1)] {
            let mut child = Command::new("unshare")
                .args(["--user", "--map-root-user", option, "sh", "-c", script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            // Both descend from this process.
            let own = ProcessRef::open(i32::try_from(std::process::id()).unwrap());
            let pids = [pid_of(&init), pid_of(&child)].into();
            let snapshot = Snapshot::take(&own.unwrap().unwrap(), &pids).unwrap();
            let found = findings(pid_of(&init), &snapshot).unwrap();
            let users = |finding: &&Finding| finding.evidence.contains("of users");
            assert_eq!(found.iter().filter(users).count(), 1, "{found:?}");
            assert_eq!(found.len(), 1 + expected, "{option}: {found:?}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
        init.kill().unwrap();
        init.wait().unwrap();
    }
}
