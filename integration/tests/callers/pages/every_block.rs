//! No block of a document is left out: each is run by a test, or at least parsed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_engine::operation::progress::UnderWay;

use super::blocks::{Block, all_blocks};

/// The use of the blocks below a heading.
enum Checked {
    /// A test in this file, which names the page, runs them.
    By(&'static str),
    /// They need more than a test host has: a cluster, nerdctl, another machine, the compiler.
    Shell,
    /// An object of Kubernetes: `structure::kubernetes` reads what a fence calls `yaml`.
    Yaml,
    /// `progress.json`.
    Progress,
    Json,
    /// Neither commands nor data: a message, a drawing.
    Text,
}

use Checked::{By, Json, Progress, Shell, Text, Yaml};

const README: Checked = By("pages/readme.rs");
const QUICKSTART: Checked = By("pages/quickstart.rs");
const CREATE: Checked = By("pages/create.rs");
const CONTAINERD: Checked = By("pages/containerd.rs");

/// The pages and headings with blocks, in order, and the number of these.
const ALL: [(&str, &str, usize, Checked); 29] = [
    ("CONTRIBUTING.md", "Before a commit", 1, Shell),
    ("README.md", "stasis", 1, README),
    ("README.md", "Install", 1, README),
    ("README.md", "Two minutes with podman", 1, README),
    ("docs/commands.md", "stasis push, stasis pull", 1, CREATE),
    ("docs/containerd.md", "ctr", 1, CONTAINERD),
    ("docs/containerd.md", "nerdctl", 1, Shell),
    ("docs/containerd.md", "Who may restore is root", 1, Yaml),
    (
        "docs/containerd.md",
        "In place of containerd's own shim",
        1,
        CONTAINERD,
    ),
    ("docs/containerd.md", "Going back", 2, CONTAINERD),
    ("docs/containerd.md", "What it does now", 1, Progress),
    (
        "docs/containerd.md",
        "Jobs of several processes",
        1,
        CONTAINERD,
    ),
    (
        "docs/create.md",
        "Containers that begin with an image",
        2,
        CREATE,
    ),
    ("docs/create.md", "An image of a registry", 1, CREATE),
    ("docs/create.md", "Checkpointed instead of lost", 2, CREATE),
    (
        "docs/create.md",
        "Preempted here, going on there",
        1,
        CREATE,
    ),
    ("docs/hooks.md", "Examples", 3, By("pages/hooks.rs")),
    (
        "docs/internals/image-format.md",
        "`stasis-memory.index`",
        1,
        Text,
    ),
    ("docs/kubernetes.md", "Installer", 2, Shell),
    ("docs/kubernetes.md", "Checkpoint", 1, Shell),
    (
        "docs/kubernetes.md",
        "Restore",
        1,
        By("other_hosts/as_image.rs"),
    ),
    ("docs/quickstart.md", "The node", 2, QUICKSTART),
    ("docs/quickstart.md", "podman", 5, QUICKSTART),
    ("docs/quickstart.md", "containerd", 5, QUICKSTART),
    ("docs/quickstart.md", "Docker", 5, QUICKSTART),
    ("docs/quickstart.md", "What was done", 1, QUICKSTART),
    ("docs/sizing.md", "For a running job", 1, README),
    ("docs/troubleshooting.md", "Troubleshooting", 1, Text),
    ("docs/troubleshooting.md", "Where to look", 1, Json),
];

#[test]
fn each_is_run_or_parsed() -> Result<()> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for (page, blocks) in pages()? {
        for block in blocks {
            let here = |(of, heading, ..): &&(&str, &str, usize, Checked)| {
                *of == page && *heading == block.heading
            };
            let place = format!("{page}, {:?}", block.heading);
            match ALL.iter().find(here) {
                None => wrong.push(format!("{place}: no test knows of its block")),
                Some((.., how)) => {
                    let is_right = is_right(&block, &page, how).with_context(|| place.clone());
                    wrong.extend(is_right.err().map(|why| format!("{why:#}")));
                }
            }
            found.push(place);
        }
    }
    for (page, heading, number, _) in &ALL {
        let place = format!("{page}, {heading:?}");
        let here = found.iter().filter(|other| **other == place).count();
        if here != *number {
            wrong.push(format!("{place}: {here} blocks, and {number} are known"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn is_right(block: &Block, page: &str, how: &Checked) -> Result<()> {
    match how {
        By(test) => names_the_page(test, page),
        Shell => is_shell(&block.text),
        Yaml => {
            ensure!(block.language == "yaml", "its fence does not say yaml");
            Ok(())
        }
        Progress => Ok(serde_json::from_str::<UnderWay>(&block.text).map(drop)?),
        Json => Ok(serde_json::from_str::<Value>(&block.text).map(drop)?),
        Text => Ok(()),
    }
}

fn names_the_page(test: &str, page: &str) -> Result<()> {
    let test = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/callers")
        .join(test);
    let source = fs::read_to_string(&test).with_context(|| test.display().to_string())?;
    let call = format!("page(\"{page}\")");
    ensure!(
        source.contains(&call),
        "{} does not read it",
        test.display()
    );
    Ok(())
}

fn is_shell(script: &str) -> Result<()> {
    let output = Command::new("bash").args(["-n", "-c", script]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && errors.is_empty(), "{errors}");
    Ok(())
}

/// Returns the documents by their paths, with their blocks.
fn pages() -> Result<Vec<(String, Vec<Block>)>> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut folders = vec![repository.clone()];
    while let Some(folder) = folders.pop() {
        for path in visible(&folder)? {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                let inside = path.strip_prefix(&repository)?.display().to_string();
                let text = fs::read_to_string(&path)?;
                let blocks = all_blocks(&text).with_context(|| inside.clone())?;
                found.push((inside, blocks));
            }
        }
    }
    Ok(found)
}

fn visible(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with('.') && !["target", "shared"].contains(&&*name) {
            found.push(path);
        }
    }
    Ok(found)
}
