//! The files that containerd reads: its own one, and those that others import.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::Item;

use crate::cli::setup::{change, tables};

/// Those that are there, each once, the main file first. An imported file imports others, too.
pub(super) fn with_imports(main: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut seen = HashSet::new();
    let mut left = vec![main.to_owned()];
    while let Some(file) = left.pop() {
        // They may import each other in a circle, by any path.
        if fs::canonicalize(&file).is_ok_and(|file| seen.insert(file)) {
            left.extend(imported_by(&file));
            files.push(file);
        }
    }
    files
}

/// None of a file that cannot be read, which others say.
fn imported_by(file: &Path) -> Vec<PathBuf> {
    let read = change::read(file).and_then(|text| tables::parse(file, text.as_deref()));
    let document = read.unwrap_or_default();
    let imports = tables::find(&document, &["imports"]).and_then(Item::as_array);
    let imports = imports.into_iter().flatten();
    imports
        .filter_map(|import| import.as_str())
        // A relative one is beside the file that names it.
        .map(|import| file.with_file_name(import))
        .flat_map(|import| matching(&import))
        .collect()
}

/// The file, or all in its directory whose names have what stands around a `*`.
fn matching(import: &Path) -> Vec<PathBuf> {
    let name = import.file_name().unwrap_or_default().to_string_lossy();
    let Some((before, behind)) = name.split_once('*') else {
        return vec![import.to_owned()];
    };
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(before);
        rest.is_some_and(|rest| rest.ends_with(behind))
    };
    let entries = fs::read_dir(import.parent().unwrap_or(Path::new("/")));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("conf.d")).unwrap();
        for (name, contents) in files {
            fs::write(directory.path().join(name), contents).unwrap();
        }
        let found = with_imports(&directory.path().join("config.toml"));
        let name = |path: &PathBuf| {
            let inside = path.strip_prefix(directory.path()).unwrap();
            inside.display().to_string()
        };
        let mut names: Vec<String> = found.iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn all_that_are_imported_are_found_once() {
        let names = found(&[
            (
                "config.toml",
                "imports = [\"conf.d/a*.toml\", \"other.toml\", \"conf.d/ab.toml\", \"nil\", 3]",
            ),
            (
                "other.toml",
                "imports = [\"conf.d/../config.toml\", \"last.toml\"]",
            ),
            ("last.toml", "[[["),
            ("conf.d/a.toml", ""),
            ("conf.d/ab.toml", ""),
            ("conf.d/b.toml", ""),
            ("conf.d/a.txt", ""),
        ]);
        let expected = [
            "conf.d/a.toml",
            "conf.d/ab.toml",
            "config.toml",
            "last.toml",
            "other.toml",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn nothing_is_imported_where_nothing_is() {
        assert_eq!(found(&[]), Vec::<String>::new());
    }
}
