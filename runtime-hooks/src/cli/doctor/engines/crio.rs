//! CRI-O's settings.

use std::fs;
use std::path::PathBuf;

use super::{NAME, Toml, forbidden, missing, read};
use crate::cli::doctor::Finding;

const MAIN: &str = "/etc/crio/crio.conf";
/// Read after it, in the order of their names.
const DIRECTORY: &str = "/etc/crio/crio.conf.d";
/// The program of the handler.
const RUNTIME: [&str; 5] = ["crio", "runtime", "runtimes", NAME, "runtime_path"];
/// Which checkpoints there are (crio.conf(5)).
const LEVEL: [&str; 3] = ["crio", "checkpoint_restore", "container_level_enabled"];
/// The same, in earlier versions.
const CRIU: [&str; 3] = ["crio", "runtime", "enable_criu_support"];

pub(super) fn findings() -> Vec<Finding> {
    let (files, mut found) = read(paths(), "crio");
    found.extend(of(&files));
    found
}

pub(super) fn paths() -> Vec<PathBuf> {
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    paths.sort();
    paths.insert(0, MAIN.into());
    paths
}

/// Of the files in the order in which they are read: the last one counts.
fn of(files: &[Toml]) -> Vec<Finding> {
    let last = |keys: &[&str]| {
        let mut files = files.iter().rev();
        files.find_map(|file| Some((file, file.find(keys)?)))
    };
    let Some((file, runtime)) = last(&RUNTIME) else {
        return Vec::new();
    };
    let runtime = runtime.as_str().unwrap_or_default();
    let mut found = Vec::from_iter(missing(runtime, &file.path, "crio"));
    let level = last(&LEVEL).filter(|(_, level)| level.as_str() == Some("none"));
    let criu = last(&CRIU).filter(|(_, criu)| criu.as_bool() == Some(false));
    let off = [
        (level, "container_level_enabled = \"none\""),
        (criu, "enable_criu_support = false"),
    ];
    for (found_in, setting) in off {
        found.extend(found_in.map(|(file, _)| forbidden(setting, &file.path, "crio")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::engines::tests::ids_of;

    fn found(files: &[&str]) -> Vec<String> {
        ids_of(files, of)
    }

    #[test]
    fn the_last_file_counts() {
        let ours = "[crio.runtime.runtimes.stasis]\nruntime_path = '/'";
        let gone = "[crio.runtime.runtimes.stasis]\nruntime_path = '/nil'";
        let none = "[crio.checkpoint_restore]\ncontainer_level_enabled = 'none'";
        let all = "[crio.checkpoint_restore]\ncontainer_level_enabled = 'checkpoint_restore'";
        let earlier = "[crio.runtime]\nenable_criu_support = false # why";
        assert_eq!(
            found(&[none, earlier]),
            [""; 0],
            "CRI-O does not know stasis"
        );
        assert_eq!(found(&[gone, ours]), [""; 0]);
        assert_eq!(found(&[ours, gone]), ["crio-runtime"]);
        assert_eq!(found(&[ours, none]), ["crio-checkpoints"]);
        assert_eq!(found(&[none, ours, all]), [""; 0]);
        assert_eq!(found(&[ours, earlier]), ["crio-checkpoints"]);
    }
}
