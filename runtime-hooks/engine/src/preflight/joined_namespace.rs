//! Namespaces of others that a container with a user namespace has joined, as one of a pod with
//! `hostUsers: false` has joined the pod's network.
//!
//! runc and crun have CRIU leave a network or pid namespace that is given by a path out of the
//! image, and hand the new container's over at its restore. CRIU joins it only from within the user
//! namespace, which it always makes anew (criu/cr-restore.c, `restore_task_with_children`), and
//! setns(2) wants `CAP_SYS_ADMIN` in the user namespace that owns what is joined. No namespace that
//! was there before can be owned by the new one.

use std::io;

use stasis_config::BlockerKind;
use stasis_linux::ProcessRef;
use stasis_linux::procfs::has_another_namespace;

use crate::container::Container;
use crate::preflight::blocker::Finding;

/// Namespaces that CRIU takes for external: the type in a specification, and in `/proc/PID/ns`.
const EXTERNAL: [(&str, &str); 2] = [("network", "net"), ("pid", "pid")];

/// Finds namespaces that a restore of the container could not join. A container whose specification
/// cannot be read has none.
pub(crate) fn findings(container: &Container) -> io::Result<Vec<Finding>> {
    let Some(spec) = container.spec() else {
        return Ok(Vec::new());
    };
    of_init(container.init(), spec.joined_namespaces())
}

fn of_init<'s>(
    init: &ProcessRef,
    joined: impl Iterator<Item = (&'s str, &'s str)>,
) -> io::Result<Vec<Finding>> {
    let mut found = Vec::new();
    if has_another_namespace(init, "user")? != Some(true) {
        return Ok(found);
    }
    for (kind, path) in joined {
        let Some((_, name)) = EXTERNAL.iter().find(|(external, _)| *external == kind) else {
            continue;
        };
        // CRIU leaves a process in the machine's own, which is its own, too.
        if has_another_namespace(init, name)? == Some(true) {
            found.push(Finding {
                kind: BlockerKind::JoinedNamespace,
                pid: init.pid(),
                name: init.name().to_owned(),
                evidence: format!("it has a user namespace, and has joined the {kind} of {path}"),
            });
        }
    }
    Ok(found)
}
