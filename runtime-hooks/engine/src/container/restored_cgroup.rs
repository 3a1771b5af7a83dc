//! The cgroup of a container that is being restored.
//!
//! runc and crun record a container once CRIU has restored it. If CRIU is killed before, its
//! children are only found by the cgroup that they are in: they live on, or are still dying, and
//! runc refuses a next restore into a cgroup with processes.

use std::path::{Path, PathBuf};

use stasis_config::Flavor;
use stasis_linux::cgroup::{Everywhere, Hierarchies, Membership, cgroups_path};

use crate::container::spec::Spec;

/// The path of the cgroup that the low-level runtime will put restored processes into, if it has no
/// processes yet, so that all processes in it later come from the restore. `None` as well if the
/// specification or the cgroups cannot be read.
pub(crate) fn vacant(flavor: Flavor, bundle: &Path, id: &str) -> Option<PathBuf> {
    let spec = Spec::read(bundle).ok()?;
    let path = match spec.cgroups_path() {
        Some(path) => cgroups_path(path).or_else(|| relative(flavor, path)),
        None => relative(flavor, id),
    }?;
    let is_vacant = Everywhere::at(&path).ok()?.pids().is_empty();
    is_vacant.then_some(path)
}

/// crun takes a relative path from the root of the hierarchy; runc from the cgroup that it is in
/// itself, and with version 2 alone from the one above that (cgroups `fs/paths.go`,
/// `fs2/defaultpath.go`).
fn relative(flavor: Flavor, path: &str) -> Option<PathBuf> {
    let below = match flavor {
        Flavor::Crun => PathBuf::from("/"),
        Flavor::Runc => {
            let own = Membership::of(i32::try_from(std::process::id()).ok()?).ok()??;
            if Hierarchies::read().ok()?.has_v1("freezer") {
                own.v1("freezer")?.to_owned()
            } else {
                let own = own.v2()?;
                own.parent().unwrap_or(own).to_owned()
            }
        }
    };
    cgroups_path(below.join(path).to_str()?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cgroup_with_processes_is_not_vacant() {
        let own = i32::try_from(std::process::id()).unwrap();
        let membership = Membership::of(own).unwrap().unwrap();
        let hierarchies = Hierarchies::read().unwrap();
        let occupied = membership
            .v1("freezer")
            .filter(|_| hierarchies.has_v1("freezer"));
        let occupied = occupied.or(membership.v2()).unwrap();
        let below = occupied.join("not-there");
        let bundle = tempfile::tempdir().unwrap();
        let mut found = [occupied, &below].map(|path| {
            let spec = serde_json::json!({"linux": {"cgroupsPath": path}});
            fs::write(bundle.path().join("config.json"), spec.to_string()).unwrap();
            vacant(Flavor::Runc, bundle.path(), "c1")
        });
        assert_eq!(found[0].take(), None);
        assert_eq!(found[1].take(), Some(below));
    }

    #[test]
    fn a_path_may_be_relative() {
        let crun = relative(Flavor::Crun, "pod/c1");
        assert_eq!(crun, Some("/pod/c1".into()));
        let runc = relative(Flavor::Runc, "c1").unwrap();
        assert!(runc.is_absolute() && runc.ends_with("c1"), "{runc:?}");
        assert_eq!(relative(Flavor::Crun, "../c1"), None);
    }
}
