//! What engines are told of stasis, in the files that `stasis setup` writes, and what they are told
//! beside that and keeps them from making checkpoints.

mod containerd;
mod crio;
mod docker;
mod imports;
mod podman;
mod untold;

use std::path::{Path, PathBuf};

use stasis_linux::error_chain;
use toml_edit::{DocumentMut, Item};

use super::{fault, warning};
use crate::cli::doctor::Finding;
use crate::cli::setup::{SetupError, change, tables};

/// Of the runtime, or handler, in the settings of each.
const NAME: &str = "stasis";

pub(super) fn findings() -> Vec<Finding> {
    let mut found = [
        docker::findings(),
        podman::findings(),
        containerd::findings(),
        crio::findings(),
    ]
    .concat();
    let files = [containerd::paths(), crio::paths()].concat();
    let files = podman::SETTINGS.map(PathBuf::from).into_iter().chain(files);
    found.extend(untold::finding(files.chain([docker::SETTINGS.into()])));
    found
}

/// A file of settings.
#[derive(Debug)]
struct Toml {
    path: PathBuf,
    document: DocumentMut,
}

impl Toml {
    /// An empty one where there is no file.
    fn read(path: PathBuf) -> Result<Self, SetupError> {
        let text = change::read(&path)?;
        let document = tables::parse(&path, text.as_deref())?;
        Ok(Self { path, document })
    }

    fn find(&self, keys: &[&str]) -> Option<&Item> {
        tables::find(&self.document, keys)
    }
}

/// Those of an engine that can be read, and what is to be said of the others.
fn read(paths: impl IntoIterator<Item = PathBuf>, engine: &str) -> (Vec<Toml>, Vec<Finding>) {
    let mut files = Vec::new();
    let mut found = Vec::new();
    for path in paths {
        match Toml::read(path) {
            Ok(file) => files.push(file),
            Err(error) => found.push(unreadable(engine, error_chain(&error))),
        }
    }
    (files, found)
}

fn unreadable(engine: &str, why: String) -> Finding {
    fault(
        &format!("{engine}-settings"),
        why,
        "correct it: the engine may not start with it",
    )
}

/// The program of stasis that a file names has to be there.
fn missing(program: &str, file: &Path, engine: &str) -> Option<Finding> {
    let is_missing = !Path::new(program).exists();
    is_missing.then(|| {
        fault(
            &format!("{engine}-runtime"),
            format!("{} names {program}, which is not there", file.display()),
            format!("stasis setup {engine}"),
        )
    })
}

/// The engine knows stasis, and is told by this setting to make no checkpoints.
fn forbidden(setting: &str, file: &Path, engine: &str) -> Finding {
    warning(
        &format!("{engine}-checkpoints"),
        format!("{} forbids checkpoints: {setting}", file.display()),
        "take that out, and restart the engine",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of what is found in files with these texts.
    pub(super) fn ids_of(files: &[&str], of: fn(&[Toml]) -> Vec<Finding>) -> Vec<String> {
        let files = files.iter().map(|text| Toml {
            path: "x".into(),
            document: text.parse().unwrap(),
        });
        let files: Vec<Toml> = files.collect();
        of(&files).into_iter().map(|found| found.id).collect()
    }
}
