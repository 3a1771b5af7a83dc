//! The documents' tables name the test of each row: those tests exist.

use std::fs;
use std::path::{Path, PathBuf};

use super::{all_files, refuse, repository};

/// Where a table's files begin: most at the first, those about hostile containers at the second,
/// and unit tests at the others.
const TESTS: [&str; 4] = [
    "integration/tests",
    "integration/tests/engine/hostile",
    "runtime-hooks",
    "runtime-hooks/engine/src",
];

/// A cell that names tests, and where it is.
struct Cell {
    place: String,
    text: String,
}

#[test]
fn tests_that_tables_name_are_there() {
    let tables: Vec<Cell> = all_files(".md")
        .iter()
        .flat_map(|file| cells(file))
        .collect();
    assert!(tables.len() > 50, "only {} rows name tests", tables.len());
    let sources = Sources::read();
    let mut missing = Vec::new();
    for Cell { place, text } in &tables {
        let mut file = None;
        for name in text.split('`').skip(1).step_by(2) {
            let is_there = if name.contains(['/', '.']) {
                file = test_file(name);
                file.is_some()
            } else {
                sources.has(name, file.as_deref())
            };
            if !is_there {
                missing.push(format!("{place}: {name}"));
            }
        }
    }
    refuse("tests that are named and not there", &missing);
}

/// Returns the last cells of the rows of tables whose last column is called "test".
fn cells(file: &Path) -> Vec<Cell> {
    let text = fs::read_to_string(file).unwrap();
    let (mut cells, mut names_tests) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let row = line.strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let last = row.and_then(|row| row.rsplit('|').next()).map(str::trim);
        match last {
            None => names_tests = false,
            Some("test") => names_tests = true,
            Some(cell) if names_tests && !cell.starts_with("---") => cells.push(Cell {
                place: format!("{}:{}", file.display(), at + 1),
                text: cell.to_owned(),
            }),
            Some(_) => {}
        }
    }
    cells
}

fn test_file(name: &str) -> Option<PathBuf> {
    let candidates = TESTS.map(|base| repository().join(base).join(name));
    candidates.into_iter().find(|path| path.exists())
}

/// The texts of all Rust files.
struct Sources(Vec<(PathBuf, String)>);

impl Sources {
    fn read() -> Self {
        let files = all_files(".rs").into_iter();
        Self(
            files
                .map(|file| (file.clone(), fs::read_to_string(&file).unwrap()))
                .collect(),
        )
    }

    /// Whether a file or folder of tests has a function of this name, or, as a unit test, the code.
    fn has(&self, name: &str, within: Option<&Path>) -> bool {
        let function = format!("fn {name}(");
        self.0.iter().any(|(file, text)| {
            let is_within = within.is_some_and(|place| file.starts_with(place));
            let is_unit_test = file.components().any(|part| part.as_os_str() == "src");
            (is_within || is_unit_test) && text.contains(&function)
        })
    }
}
