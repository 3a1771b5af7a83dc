//! The shims that containerd remembers, and the link in the place of its own.

use std::fs;
use std::path::Path;

use super::fault;
use crate::answer::amount::counted;
use crate::doctor::Finding;
use crate::setup::in_use::{bundles, recorded_in};

/// Where a link to our shim takes the place of containerd's own.
const LINK: &str = "/usr/local/bin/containerd-shim-runc-v2";

pub(super) fn fact() -> String {
    format!(
        "{} with a shim of containerd, all installed",
        counted(bundles().len(), "container")
    )
}

pub(super) fn findings() -> Vec<Finding> {
    let leads_nowhere = |path: &Path| fs::symlink_metadata(path).is_ok() && !path.exists();
    let mut found = Vec::new();
    if leads_nowhere(Path::new(LINK)) {
        found.push(fault(
            "shim-link",
            format!("{LINK} leads to nothing"),
            "point it to a shim (docs/containerd.md, \"Going back\")",
        ));
    }
    for bundle in bundles() {
        let recorded = recorded_in(&bundle).ok().flatten();
        if let Some(path) = recorded.filter(|path| path.is_absolute() && !path.exists()) {
            found.push(fault(
                "shim-gone",
                format!("{} needs {}", bundle.display(), path.display()),
                "put a shim there: containerd forgets the container when it starts again",
            ));
        }
    }
    found
}
