//! Checks of this repository's layout: how many entries a folder has, how long files and lines are,
//! that no circle ties modules together, that imports point downwards, and that the tests and pages
//! that documents name exist.
//!
//! A module is a file. Inside each folder its entries are compared with each other: a file counts
//! for the entry of that folder that holds it. A folder's own `mod.rs` is the parent of the other
//! entries and not one of them, so a parent and its children may name each other.

mod circles;
mod dependencies;
mod figures;
mod glossary;
mod kubernetes;
mod links;
mod modules;
mod named_tests;
mod subjects;

use std::fs;
use std::path::{Path, PathBuf};

use circles::circles;
use modules::{Crate, is_test};

/// Entries of a folder; folders of tests may have more.
const MOST_ENTRIES: usize = 20;
/// Lines of a Rust file, and of the product's one in the middle.
const MOST_LINES: usize = 300;
const MEDIAN_LINES: usize = 150;
/// Columns of a comment, and of a line of prose.
const MOST_COLUMNS: usize = 100;

/// The rooms of the engine, from the top down.
const ENGINE: [&str; 17] = [
    "workers",
    "delete",
    "suspend",
    "checkpoint",
    "restore",
    "recovery",
    "companions",
    "bulk_memory",
    "error",
    "preflight",
    "low_level",
    "image",
    "operation",
    "context",
    "container",
    "request",
    "lib",
];

/// Those of the GPU's crate.
const GPU: [&str; 3] = ["gpu_path", "ledger", "cuda"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Lists the entries of `directory` in the repository, without hidden ones and build outputs.
fn visible(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        if !name.starts_with('.') && !["target", "shared"].contains(&name) {
            found.push(path);
        }
    }
}

/// Lists every file below `directory` that is the repository's own.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries = Vec::new();
    visible(directory, &mut entries);
    for path in entries {
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn all_files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&repository(), &mut found);
    found.retain(|path| path.to_str().unwrap().ends_with(ending));
    found
}

fn crates() -> Vec<Crate> {
    let manifests = all_files("Cargo.toml");
    let directories = manifests
        .iter()
        .map(|manifest| manifest.with_file_name("src"));
    let directories = directories.filter(|source| source.is_dir());
    directories.map(|source| Crate::read(&source)).collect()
}

fn refuse(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn no_folder_has_too_many_entries() {
    let mut crowded = Vec::new();
    for folder in all_files("").iter().filter_map(|file| file.parent()) {
        let mut entries = Vec::new();
        visible(folder, &mut entries);
        let line = format!("{}: {}", folder.display(), entries.len());
        if entries.len() > MOST_ENTRIES && !is_test(folder) && !crowded.contains(&line) {
            crowded.push(line);
        }
    }
    refuse("folders with more than 20 entries", &crowded);
}

#[test]
fn no_circle_ties_modules_together() {
    let mut found = Vec::new();
    for one in crates() {
        for (folder, graph) in one.folders() {
            for circle in circles(&graph) {
                found.push(format!("{}::{folder}: {}", one.name, circle.join(", ")));
            }
        }
    }
    refuse("modules that need each other", &found);
}

#[test]
fn imports_of_the_engine_point_downwards() {
    let mut upward = upward("runtime-hooks/engine/src", &ENGINE);
    upward.extend(self::upward("runtime-hooks/gpu/src", &GPU));
    refuse("imports against the direction", &upward);
}

/// The references of a crate from one of its rooms to one above it.
fn upward(source: &str, rooms: &[&str]) -> Vec<String> {
    let read = Crate::read(&repository().join(source));
    let floor = |module: &str| {
        let is_in = |room: &&str| module == *room || module.starts_with(&format!("{room}::"));
        rooms.iter().position(is_in)
    };
    let is_upward = |(from, to): &(&str, &str)| matches!((floor(from), floor(to)), (Some(from), Some(to)) if to < from);
    let upward = read.references().filter(is_upward);
    upward
        .map(|(from, to)| format!("{from} names {to}"))
        .collect()
}

#[test]
fn files_are_short() {
    let mut lengths = Vec::new();
    let mut long = Vec::new();
    for file in all_files(".rs") {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        if !is_test(&file) {
            lengths.push(lines);
        }
        if lines > MOST_LINES {
            long.push(format!("{}: {lines} lines", file.display()));
        }
    }
    refuse("files of more than 300 lines", &long);
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= MEDIAN_LINES, "the median file has {median} lines");
}

#[test]
fn comments_are_narrow() {
    let mut wide = Vec::new();
    for file in all_files(".rs") {
        let text = fs::read_to_string(&file).unwrap();
        let is_wide =
            |line: &str| line.trim_start().starts_with("//") && line.chars().count() > MOST_COLUMNS;
        let lines = text.lines().enumerate().filter(|(_, line)| is_wide(line));
        wide.extend(lines.map(|(at, _)| format!("{}:{}", file.display(), at + 1)));
    }
    refuse("comments of more than 100 columns", &wide);
}

/// The lines of a document, with their places, that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        is_code ^= line.starts_with("```");
        !is_code
    })
}

#[test]
fn prose_is_narrow() {
    let mut wide = Vec::new();
    for file in all_files(".md") {
        let text = fs::read_to_string(&file).unwrap();
        for (at, line) in prose(&text) {
            // A link cannot be broken, and a table row is one line.
            let may_be_wide = line.starts_with('|') || line.contains("](");
            if !may_be_wide && line.chars().count() > MOST_COLUMNS {
                wide.push(format!("{}:{}", file.display(), at + 1));
            }
        }
    }
    refuse("lines of prose of more than 100 columns", &wide);
}

#[test]
fn unsafe_code_is_where_contributors_are_told() {
    let listed = fs::read_to_string(repository().join("CONTRIBUTING.md")).unwrap();
    let allows = |file: &&PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        text.lines()
            .any(|line| line.starts_with("#![allow(unsafe_code)"))
    };
    for file in all_files(".rs").iter().filter(allows) {
        let inside = file.strip_prefix(repository()).unwrap().display();
        assert!(listed.contains(&format!("`{inside}`")), "{inside}");
    }
}

/// Words that a newcomer would search for.
#[test]
fn the_words_of_the_field_name_files() {
    let words = [
        "rollback",
        "cuda/lock",
        "memory_limit",
        "freezer",
        "task/kill",
        "task/exec",
        "task/oom",
        "chunk/checksum",
        "gpu_map",
        "device_node",
        "progress",
        "recovery",
    ];
    let files = all_files(".rs");
    let names_one = |word: &&str| {
        let (file, folder) = (format!("/{word}.rs"), format!("/{word}/mod.rs"));
        files.iter().any(|path| {
            let path = path.to_str().unwrap();
            path.ends_with(&file) || path.ends_with(&folder)
        })
    };
    let missing = words.iter().filter(|word| !names_one(word));
    let missing: Vec<_> = missing.map(|word| (*word).to_owned()).collect();
    refuse("words that name no file and no folder", &missing);
}
