//! The programs of stasis, which call each other in the directory that they lie in: the runtime
//! starts transfers of images from `stasis` beside it, and `stasis` restores by the runtime.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use super::{Finding, engines, fault, ok};

const RUNTIME: &str = "stasis-runtime";
const OPERATORS: &str = "stasis";
/// The directories of `make install` and of a package.
const DIRECTORIES: [&str; 2] = ["/usr/local/bin", "/usr/bin"];

/// Checks the directory of this program, and each from which an engine or a user calls the runtime.
pub(super) fn findings() -> Vec<Finding> {
    let own = env::current_exe().ok();
    let own = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let programs = engines::programs().into_iter();
    let called = programs.filter_map(|program| Some(program.parent()?.to_owned()));
    let called = called.filter(|directory| directory.is_dir());
    let installed = DIRECTORIES.into_iter().map(PathBuf::from);
    let installed = installed.filter(|directory| directory.join(RUNTIME).is_file());
    let all: BTreeSet<PathBuf> = called.chain(installed).chain(own.clone()).collect();
    let missing: Vec<Finding> = all
        .iter()
        .flat_map(|directory| missing_in(directory))
        .collect();
    if !missing.is_empty() {
        return missing;
    }
    let place = own.unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    vec![ok("stasis", format!("{version}, in {}", place.display()))]
}

/// Reports each of the two programs that this directory lacks.
fn missing_in(directory: &Path) -> Vec<Finding> {
    let lacks = [
        (
            OPERATORS,
            "images are neither pushed nor pulled for containers",
        ),
        (
            RUNTIME,
            "containers without an engine cannot be checkpointed",
        ),
    ];
    let lacks = lacks.into_iter();
    let lacks = lacks.filter(|(program, _)| !directory.join(program).is_file());
    let finding = |(program, consequence): (&str, &str)| {
        fault(
            "own-programs",
            format!(
                "there is no {program} in {}: {consequence}",
                directory.display()
            ),
            "install stasis again",
        )
    };
    lacks.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_looked_for_side_by_side() {
        let directory = tempfile::tempdir().unwrap();
        let lacks = || {
            let found = missing_in(directory.path()).into_iter();
            found.map(|finding| finding.evidence).collect::<Vec<_>>()
        };
        std::fs::write(directory.path().join(RUNTIME), "").unwrap();
        let found = lacks();
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("there is no stasis in /"), "{found:?}");
        std::fs::write(directory.path().join(OPERATORS), "").unwrap();
        assert_eq!(lacks(), [""; 0]);
    }
}
