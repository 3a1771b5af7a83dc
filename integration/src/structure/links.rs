//! Links of documents lead to files and headings that exist.

use std::fs;
use std::path::{Path, PathBuf};

use super::{all_files, prose, refuse, repository};

#[test]
fn links_lead_somewhere() {
    let (mut followed, mut broken) = (0, Vec::new());
    for document in all_files(".md") {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            followed += 1;
            if !leads_somewhere(&document, link) {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(followed > 150, "only {followed} links were found");
    refuse("links that lead nowhere", &broken);
}

/// Returns the links of a document to others of this repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
}

fn leads_somewhere(document: &Path, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target: PathBuf = match path {
        "" => document.to_owned(),
        path => document.with_file_name("").join(path),
    };
    let Ok(target) = target.canonicalize() else {
        return false;
    };
    if heading.is_empty() {
        return target.starts_with(repository().canonicalize().unwrap());
    }
    let text = fs::read_to_string(target).unwrap_or_default();
    prose(&text).any(|(_, line)| line.starts_with('#') && anchor(line) == heading)
}

/// Returns the name that Git hosts give a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words
        .chars()
        .filter(|letter| letter.is_alphanumeric() || "_- ".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[test]
fn headings_have_names() {
    assert_eq!(anchor("## `stasis setup`"), "stasis-setup");
    assert_eq!(anchor("### containerd 2.3 and 2.4"), "containerd-23-and-24");
}
