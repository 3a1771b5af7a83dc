//! containerd's settings: of CRI, by which pods come to stasis.

use std::path::{Path, PathBuf};

use toml_edit::Item;

use super::imports::with_imports;
use super::{NAME, Toml, forbidden, missing, read};
use crate::cli::doctor::Finding;
use crate::cli::doctor::warning;

const SETTINGS: &str = "/etc/containerd/config.toml";
/// CRI, in both versions of the settings.
const CRI: [&str; 2] = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"];
/// Pods are restored from images.
const RESTORES: &str = "enable_experimental_restore_via_create";
/// Where it is not false there are checkpoints.
const CHECKPOINTS: &str = "enable_criu";

pub(super) fn findings() -> Vec<Finding> {
    let (files, mut found) = read(paths(), "containerd");
    found.extend(of(&files));
    found
}

pub(super) fn paths() -> Vec<PathBuf> {
    with_imports(Path::new(SETTINGS))
}

fn of(files: &[Toml]) -> Vec<Finding> {
    let mut found = Vec::new();
    let shim = |file| of_cri(file, &["containerd", "runtimes", NAME, "runtime_path"])?.as_str();
    for file in files {
        found.extend(shim(file).and_then(|shim| missing(shim, &file.path, "containerd")));
        if is(file, RESTORES, true) {
            found.push(warning(
                "containerd-restores",
                format!(
                    "{} restores pods from any image that is a checkpoint",
                    file.path.display()
                ),
                "see docs/containerd.md, \"Who may restore is root\"",
            ));
        }
        let knows_stasis = || files.iter().any(|file| shim(file).is_some());
        if is(file, CHECKPOINTS, false) && knows_stasis() {
            found.push(forbidden("enable_criu = false", &file.path, "containerd"));
        }
    }
    found
}

fn of_cri<'f>(file: &'f Toml, keys: &[&str]) -> Option<&'f Item> {
    let mut names = CRI.into_iter();
    names.find_map(|cri| file.find(&[&["plugins", cri], keys].concat()))
}

fn is(file: &Toml, key: &str, value: bool) -> bool {
    of_cri(file, &[key]).and_then(Item::as_bool) == Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::engines::tests::ids_of;

    fn found(files: &[&str]) -> Vec<String> {
        ids_of(files, of)
    }

    #[test]
    fn any_of_the_files_counts() {
        let ours = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.stasis]\n\
                    runtime_path = '/'";
        let older = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.stasis]\n\
                     runtime_path = '/nil'";
        let none = "[plugins.'io.containerd.cri.v1.runtime']\nenable_criu = false";
        assert_eq!(found(&[ours]), [""; 0]);
        assert_eq!(found(&[older]), ["containerd-runtime"]);
        assert_eq!(found(&[none, ours]), ["containerd-checkpoints"]);
        assert_eq!(found(&[none]), [""; 0], "containerd does not know stasis");
    }
}
