//! Whether any engine of this machine knows stasis: nothing can be checkpointed through one that
//! does not.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;
use crate::cli::setup::change;

/// The program of each, as `stasis setup` calls the engine.
const ENGINES: [(&str, &str); 4] = [
    ("podman", "podman"),
    ("docker", "dockerd"),
    ("containerd", "containerd"),
    ("crio", "crio"),
];
/// Where a link to our shim takes the place of containerd's own.
const LINK: &str = "/usr/local/bin/containerd-shim-runc-v2";
/// What the names of our programs have in common.
const OURS: &str = "stasis";

/// `files` are the settings of all engines. Whatever a runtime is called there, our programs are
/// named.
pub(super) fn finding(files: impl IntoIterator<Item = PathBuf>) -> Option<Finding> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_here = |program: &str| env::split_paths(&path).any(|at| at.join(program).is_file());
    let here = ENGINES.iter().filter(|(_, program)| is_here(program));
    let here: Vec<&str> = here.map(|(engine, _)| *engine).collect();
    if here.is_empty()
        || leads_to_ours(Path::new(LINK))
        || files.into_iter().any(|file| names_us(&file))
    {
        return None;
    }
    Some(warning(
        "no-engine",
        format!(
            "the settings of no engine name stasis ({}); ctr needs none: --runtime \
             io.containerd.stasis.v2",
            here.join(", ")
        ),
        format!("stasis setup {}", here.join("|")),
    ))
}

fn leads_to_ours(link: &Path) -> bool {
    let target = fs::canonicalize(link).unwrap_or_default();
    target
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains(OURS))
}

/// One that cannot be read is said by others.
fn names_us(file: &Path) -> bool {
    change::read(file).map_or(true, |text| text.is_some_and(|text| text.contains(OURS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_name_a_program_of_ours_know_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("daemon.json");
        assert!(!names_us(&file));
        fs::write(&file, "{\"runtimes\": {\"runc\": {}}}").unwrap();
        assert!(!names_us(&file));
        fs::write(
            &file,
            "{\"runtimes\": {\"gpu\": {\"path\": \"/usr/bin/stasis-runtime\"}}}",
        )
        .unwrap();
        assert!(names_us(&file));
        assert_eq!(finding([file]).map(|found| found.id), None);
        let link = directory.path().join("shim");
        std::os::unix::fs::symlink("/nowhere/containerd-shim-stasis-v2", &link).unwrap();
        assert!(!leads_to_ours(&link));
    }
}
