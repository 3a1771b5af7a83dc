//! Containers of other users than root: their engines run without root, and stasis needs root.

use std::fs;
use std::path::{Path, PathBuf};

use stasis_locate::roots::places;

use super::{Finding, warning};
use crate::answer::amount::counted;

/// The directories of users, by their numbers, each with the roots of low-level runtimes.
const USERS: &str = "/run/user";
const ROOTS: [&str; 2] = ["crun", "runc"];

pub(super) fn findings() -> Vec<Finding> {
    below(Path::new(USERS))
}

fn below(users: &Path) -> Vec<Finding> {
    let entries = fs::read_dir(users).into_iter().flatten().flatten();
    let mut users: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    users.sort();
    users.iter().filter_map(|user| of(user)).collect()
}

fn of(user: &Path) -> Option<Finding> {
    let roots = ROOTS.map(|root| user.join(root));
    let found = places(&roots).len();
    let number = user.file_name()?.to_string_lossy().into_owned();
    (found > 0).then(|| {
        warning(
            "rootless",
            format!(
                "user {number} has {}: stasis does not support rootless engines",
                counted(found, "container")
            ),
            "run containers that need checkpoints as root, such as by sudo podman",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_of_a_user_is_found() {
        let users = tempfile::tempdir().unwrap();
        fs::create_dir_all(users.path().join("0/crun")).unwrap();
        assert_eq!(below(users.path()), []);
        let state = users.path().join("1000/crun/abc");
        fs::create_dir_all(&state).unwrap();
        fs::write(state.join("status"), "{}").unwrap();
        let found = below(users.path());
        assert_eq!(found.len(), 1);
        assert!(
            found[0].evidence.starts_with("user 1000 has 1 container: "),
            "{found:?}"
        );
    }
}
