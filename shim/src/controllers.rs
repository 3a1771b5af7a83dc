//! On cgroup v2 a controller is there only if every cgroup above hands it on.

use std::fs;
use std::path::Path;

use crate::cgroup::Cgroup;

/// Lets every cgroup above the container's hand on every controller that the host has, as
/// containerd's shim does: statistics and limits that are asked for later need them.
pub(crate) fn hand_on(cgroup: &Cgroup) {
    let Cgroup::V2(path) = cgroup else { return };
    let is_cgroup = |path: &&Path| path.join("cgroup.controllers").exists();
    let mut above: Vec<&Path> = path.ancestors().skip(1).take_while(is_cgroup).collect();
    above.reverse();
    let Some(top) = above.first() else { return };
    let available = fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
    for directory in above {
        for controller in available.split_whitespace() {
            // One at a time: a controller that cannot be handed on must not keep the others back.
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
            fs::write(directory.join("cgroup.controllers"), "cpu memory\n").unwrap();
        }
        hand_on(&Cgroup::V2(container.clone()));
        let written =
            |directory: &Path| fs::read_to_string(directory.join("cgroup.subtree_control"));
        assert_eq!(written(&top).unwrap(), "+memory");
        assert_eq!(written(&top.join("pod")).unwrap(), "+memory");
        assert!(written(&container).is_err());
        assert!(written(outside.path()).is_err());
    }
}
