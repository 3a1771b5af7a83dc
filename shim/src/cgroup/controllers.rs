//! On cgroup v2 a cgroup has a controller only if all its ancestors enable it for their children.

use std::fs;
use std::path::Path;

use crate::cgroup::Cgroup;

/// Enables every controller of the host in all cgroups above the container's, as containerd's shim
/// does: later requests for statistics and limits need them.
pub(crate) fn enable_in_ancestors(cgroup: &Cgroup) {
    let Cgroup::V2(path) = cgroup else { return };
    let cgroup = stasis_linux::cgroup::Cgroup::v2(path.clone());
    let mut above: Vec<&Path> = cgroup.with_ancestors().skip(1).collect();
    above.reverse();
    let Some(top) = above.first() else { return };
    let available = fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
    for directory in above {
        for controller in available.split_whitespace() {
            // One write each: the kernel refuses a write as a whole if one controller cannot be
            // enabled.
            let _ = fs::write(
                directory.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cgroup_above_gets_the_controllers_of_the_top_one() {
        let outside = tempfile::tempdir().unwrap();
        let top = outside.path().join("top");
        let container = top.join("pod/container");
        fs::create_dir_all(&container).unwrap();
        for directory in [top.clone(), top.join("pod"), container.clone()] {
            fs::write(directory.join("cgroup.procs"), "").unwrap();
            fs::write(directory.join("cgroup.controllers"), "cpu memory\n").unwrap();
        }
        enable_in_ancestors(&Cgroup::V2(container.clone()));
        let written =
            |directory: &Path| fs::read_to_string(directory.join("cgroup.subtree_control"));
        assert_eq!(written(&top).unwrap(), "+memory");
        assert_eq!(written(&top.join("pod")).unwrap(), "+memory");
        assert!(written(&container).is_err());
        assert!(written(outside.path()).is_err());
    }
}
