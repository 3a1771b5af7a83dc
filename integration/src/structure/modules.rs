//! The modules of a crate, and which of them each one names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::files;

/// The entries of one folder, each with the entries that it names.
pub(super) type Graph = BTreeMap<String, BTreeSet<String>>;

/// The source of one crate.
pub(super) struct Crate {
    pub(super) name: String,
    /// Each module's path (`a::b`), and the paths that it names.
    modules: BTreeMap<String, BTreeSet<String>>,
}

/// Whether a file is a test alone: `tests.rs`, or anything below a folder `tests`.
pub(super) fn is_test(path: &Path) -> bool {
    path.components()
        .any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
}

impl Crate {
    /// Reads all product files below `source`; programs (`bin/`, `main.rs`) name the library only.
    pub(super) fn read(source: &Path) -> Self {
        let mut found = Vec::new();
        files(source, &mut found);
        let is_module = |path: &PathBuf| {
            let inside = path.strip_prefix(source).unwrap();
            inside.extension().is_some_and(|ending| ending == "rs")
                && !inside.starts_with("bin")
                && !is_test(inside)
        };
        let texts: BTreeMap<String, String> = found
            .iter()
            .filter(|path| is_module(path))
            .map(|path| (module_of(source, path), product(path)))
            .collect();
        let modules = texts
            .iter()
            .map(|(module, text)| (module.clone(), named(module, text, &texts)))
            .collect();
        let name = source.parent().and_then(Path::file_name).unwrap();
        Self {
            name: name.to_str().unwrap().to_owned(),
            modules,
        }
    }

    /// Every pair of modules of which the first names the second.
    pub(super) fn references(&self) -> impl Iterator<Item = (&str, &str)> {
        self.modules
            .iter()
            .flat_map(|(from, all)| all.iter().map(move |to| (from.as_str(), to.as_str())))
    }

    /// Returns, for each folder, which of its entries name which others.
    pub(super) fn folders(&self) -> BTreeMap<String, Graph> {
        let mut folders: BTreeMap<String, Graph> = BTreeMap::new();
        for (from, to) in self.references() {
            let (from, to): (Vec<&str>, Vec<&str>) =
                (from.split("::").collect(), to.split("::").collect());
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // One of the two is the other's parent, or the crate's root.
            let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) else {
                continue;
            };
            let graph = folders.entry(from[..shared].join("::")).or_default();
            graph
                .entry((*a).to_owned())
                .or_default()
                .insert((*b).to_owned());
        }
        folders
    }
}

/// Names a file's module: `a/b.rs` and `a/b/mod.rs` are `a::b`; the crate's root is empty.
fn module_of(source: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(source).unwrap().with_extension("");
    let parts: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
    match parts.as_slice() {
        ["lib" | "main"] => String::new(),
        [folder @ .., "mod"] => folder.join("::"),
        all => all.join("::"),
    }
}

/// Returns the file without comments and without its unit tests, which stand at its end.
fn product(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let is_tests = |at: &(usize, &str)| {
        let next = text[at.0..].lines().nth(1).unwrap_or_default();
        next.starts_with("mod ") || next.starts_with("pub(crate) mod ")
    };
    let tests = text.match_indices("#[cfg(test)]\n").find(is_tests);
    let lines = text[..tests.map_or(text.len(), |(at, _)| at)].lines();
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the modules of `all` that the module `own` names by `crate::` and `super::` paths.
fn named(own: &str, text: &str, all: &BTreeMap<String, String>) -> BTreeSet<String> {
    let parent: Vec<&str> = own
        .rsplit_once("::")
        .map_or(Vec::new(), |(up, _)| up.split("::").collect());
    let mut paths = Vec::new();
    for (start, from) in [("crate::", Vec::new()), ("super::", parent)] {
        for (at, _) in text.match_indices(start) {
            let is_whole = !text[..at].ends_with(|before: char| {
                before.is_alphanumeric() || before == '_' || before == ':'
            });
            if is_whole {
                read_path(&text[at + start.len()..], &from, &mut paths);
            }
        }
    }
    let deepest = |path: &Vec<String>| {
        (1..=path.len())
            .rev()
            .map(|length| path[..length].join("::"))
            .find(|module| all.contains_key(module))
    };
    let mut named: BTreeSet<String> = paths.iter().filter_map(deepest).collect();
    named.remove(own);
    named
}

/// Reads `a::b::{c, d::e}` behind a path's beginning; returns the rest of the text.
fn read_path<'t>(text: &'t str, before: &[&str], paths: &mut Vec<Vec<String>>) -> &'t str {
    let mut path = before.to_vec();
    let mut rest = text.trim_start();
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            rest = group;
            loop {
                rest = read_path(rest, &path, paths).trim_start();
                match rest.strip_prefix(',') {
                    Some(next) if !next.trim_start().starts_with('}') => rest = next,
                    Some(next) => return &next.trim_start()[1..],
                    None => return rest.strip_prefix('}').unwrap_or(rest),
                }
            }
        }
        let end = rest
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        path.push(&rest[..end]);
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(next) => rest = next,
            None => break,
        }
    }
    paths.push(path.iter().map(|&part| part.to_owned()).collect());
    // `X as Y`
    let end = rest.find([',', '}', ';', '\n', '(']).unwrap_or(rest.len());
    &rest[end..]
}
