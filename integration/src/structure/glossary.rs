//! The glossary of CONTRIBUTING.md names folders, files and types: they exist.

use std::fs;

use super::{all_files, refuse, repository};

/// More is no glossary that a reader keeps in mind.
const MOST_LINES: usize = 60;

/// Where paths of the glossary begin.
const ROOTS: [&str; 4] = [
    "runtime-hooks/engine/src",
    "runtime-hooks/gpu/src",
    "runtime-hooks",
    "",
];

fn glossary() -> String {
    let text = fs::read_to_string(repository().join("CONTRIBUTING.md")).unwrap();
    let (_, glossary) = text.split_once("\n## Glossary\n").unwrap();
    let end = glossary.find("\n## ").unwrap_or(glossary.len());
    glossary[..end].to_owned()
}

fn is_path(name: &str) -> bool {
    ROOTS.iter().any(|root| {
        let path = repository().join(root).join(name);
        path.exists() || path.with_extension("rs").exists()
    })
}

/// Whether a source declares it: a type, a function, or a variable.
fn is_declared(name: &str, sources: &[String]) -> bool {
    let declarations =
        ["struct", "enum", "trait", "type", "fn"].map(|kind| format!("{kind} {name}"));
    sources.iter().any(|text| {
        let is_there = |declaration: &String| {
            text.match_indices(declaration.as_str()).any(|(at, found)| {
                !text[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        };
        declarations.iter().any(is_there)
    })
}

#[test]
fn glossary_names_what_exists() {
    let glossary = glossary();
    assert!(glossary.lines().count() <= MOST_LINES);
    let rows: Vec<&str> = glossary
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    assert!(rows.len() > 20, "only {} rows", rows.len());
    let sources = all_files(".rs").into_iter().map(fs::read_to_string);
    let sources: Vec<String> = sources.map(Result::unwrap).collect();
    let mut missing = Vec::new();
    for row in rows {
        let place = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap();
        for name in place.split('`').skip(1).step_by(2) {
            if !is_path(name) && !is_declared(name, &sources) {
                missing.push(format!("{name}, of the row {row}"));
            }
        }
    }
    refuse("names of the glossary that nothing has", &missing);
}
