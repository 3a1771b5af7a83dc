//! podman's settings.

use std::path::Path;

use super::{NAME, Toml, missing, read};
use crate::cli::doctor::Finding;

pub(super) const SETTINGS: [&str; 2] = [
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/stasis.conf",
];

pub(super) fn findings() -> Vec<Finding> {
    let (files, mut found) = read(SETTINGS.map(Into::into), "podman");
    found.extend(files.iter().filter_map(of));
    found
}

fn of(file: &Toml) -> Option<Finding> {
    let paths = file.find(&["engine", "runtimes", NAME])?;
    let paths = paths.as_array()?.iter().filter_map(|path| path.as_str());
    let paths: Vec<&str> = paths.collect();
    // podman takes the first that is there.
    if paths.iter().any(|path| Path::new(path).exists()) {
        return None;
    }
    missing(paths.first()?, &file.path, "podman")
}
