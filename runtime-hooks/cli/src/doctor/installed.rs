//! The programs that stasis and containerd run.

use std::path::PathBuf;

use stasis_config::Settings;

use super::{Finding, ok};
use crate::programs::{Version, in_path, version_at};

const RUNTIME: &str = "low-level-runtime";

/// An installed program.
#[derive(Debug)]
pub(super) struct Installed {
    /// Its use: "low-level-runtime", "containerd".
    id: &'static str,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its own name, whatever its file is called, and its version, if it reports them.
    version: Option<(String, Version)>,
}

/// Finds the low-level runtime of the settings, and the containerd in `PATH`.
pub(super) fn installed(settings: &Settings) -> Vec<Installed> {
    let runtime = settings.runtime.resolve().ok().map(|found| found.path);
    let runtime = runtime.map(|path| (RUNTIME, path));
    let containerd = in_path("containerd").map(|path| ("containerd", path));
    let ask = |(id, path): (&'static str, PathBuf)| {
        let version = version_at(&path);
        Installed { id, path, version }
    };
    runtime.into_iter().chain(containerd).map(ask).collect()
}

impl Installed {
    /// Reports a low-level runtime, its version and its path; engines are reported with their
    /// settings.
    pub(super) fn finding(&self) -> Option<Finding> {
        let path = self.path.display();
        let evidence = match &self.version {
            Some((program, version)) => format!("{program} {version}, {path}"),
            None => format!("of unknown version, {path}"),
        };
        (self.id == RUNTIME).then(|| ok(RUNTIME, evidence))
    }
}
