//! Comments and documents are written with subjects: a sentence that opens with one of these words
//! has none, and a reader has to guess it.

use std::fs;
use std::path::Path;

use super::{all_files, prose, refuse};

const OPENINGS: [&str; 6] = ["That of", "Those", "What", "Who", "Whose", "It is"];
/// Questions, and sentences whose subject stands behind.
const MOST: usize = 20;

/// The words of a comment or of a line of prose; `None` for code.
fn words(line: &str, is_document: bool) -> Option<&str> {
    let line = line.trim_start();
    if is_document {
        return Some(line.trim_start_matches(['-', '*', '|', '>', ' ']));
    }
    let comment = line.strip_prefix("//")?;
    Some(comment.trim_start_matches(['/', '!', '-', '*', ' ']))
}

fn opens_without_subject(words: &str) -> bool {
    OPENINGS.iter().any(|opening| {
        let behind = words.strip_prefix(opening);
        behind.is_some_and(|behind| !behind.starts_with(char::is_alphanumeric))
    })
}

fn found(file: &Path) -> Vec<String> {
    let is_document = file.extension().is_some_and(|ending| ending == "md");
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<(usize, &str)> = match is_document {
        true => prose(&text).collect(),
        false => text.lines().enumerate().collect(),
    };
    let is_found = |line| words(line, is_document).is_some_and(opens_without_subject);
    let found = lines.into_iter().filter(|(_, line)| is_found(line));
    found
        .map(|(at, line)| format!("{}:{}: {line}", file.display(), at + 1))
        .collect()
}

#[test]
fn sentences_have_subjects() {
    let files = [".rs", ".md"].map(all_files).concat();
    let found: Vec<String> = files.iter().flat_map(|file| found(file)).collect();
    if found.len() > MOST {
        refuse("sentences without a subject", &found);
    }
}

#[test]
fn a_sentence_without_a_subject_is_found() {
    for line in [
        "/// That of a store.",
        "    // Who is killed.",
        "//! * It is there.",
    ] {
        assert!(
            words(line, false).is_some_and(opens_without_subject),
            "{line}"
        );
    }
    for line in [
        "/// Whoever reads this.",
        "let what = 1;",
        "// The keeper is killed.",
    ] {
        assert!(
            !words(line, false).is_some_and(opens_without_subject),
            "{line}"
        );
    }
    assert!(words("* What it does", true).is_some_and(opens_without_subject));
}
