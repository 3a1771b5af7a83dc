//! The documents' blocks as written: they are run in a host, in the page's order, and what they
//! show is what is printed. `every_block` lists all of them.
//!
//! A block with a line `$ COMMAND` shows output: a command goes on after a `\` at the end of its
//! line, and the lines up to the next one are what it prints, `...` standing for any lines. A block
//! without such a line is a script whose output is not shown.

mod blocks;
mod containerd;
mod create;
mod every_block;
mod hooks;
mod node;
mod quickstart;
mod readme;

use anyhow::{Context, Result, ensure};
use stasis_integration::host::installed::StasisHost;

pub(crate) use blocks::{blocks, page};

/// A person's line in a block.
const PROMPT: &str = "$ ";
/// Any lines of output.
const SOME_LINES: &str = "...";
/// Shorter runs of hexadecimal digits are words or numbers.
const DIGITS_OF_AN_ID: usize = 8;
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "ms", "s"];

/// A command, and the lines that it prints.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// Runs a block as a person would, and returns all output; what a block shows must be printed.
fn run(stasis: &StasisHost, block: &str) -> Result<String> {
    let commands = shown(block);
    if commands.is_empty() {
        return printed(stasis, block);
    }
    let mut all = String::new();
    for Shown { command, output } in commands {
        let text = printed(stasis, &command)?;
        let lines: Vec<&str> = text.lines().collect();
        ensure!(
            is_printed(&output, &lines),
            "{command}\nprinted:\n{text}\nand the page shows:\n{}",
            output.join("\n")
        );
        all.push_str(&text);
        all.push('\n');
    }
    Ok(all)
}

fn printed(stasis: &StasisHost, script: &str) -> Result<String> {
    // Test hosts with cgroups of version 1 have no controller for processors.
    let script = script.replace("ctr run -d", "ctr run -d --cpu-shares 0");
    let script = format!("cd /root\nexec 2>&1\n{script}");
    let bash = ["timeout", "120", "bash", "-ec", &script];
    let done = stasis.run_for_text(&bash);
    done.with_context(|| script.clone())
}

/// Returns the commands of a block that shows output.
fn shown(block: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix(PROMPT) {
            found.push(Shown {
                command: command.to_owned(),
                output: Vec::new(),
            });
        } else if let Some(last) = found.last_mut() {
            if last.output.is_empty() && last.command.ends_with('\\') {
                last.command.push('\n');
                last.command.push_str(line);
            } else {
                last.output.push(line.to_owned());
            }
        }
    }
    found
}

/// Whether the lines are those of the page, but for ids, numbers, sizes and the width of columns.
fn is_printed(shown: &[String], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == SOME_LINES => {
            (0..=lines.len()).any(|skipped| is_printed(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines.split_first().is_some_and(|(line, later)| {
            without_values(first) == without_values(line) && is_printed(rest, later)
        }),
    }
}

/// Returns a line's words, with `N` for numbers, sizes and ids.
fn without_values(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        if UNITS.contains(&word.trim_end_matches(','))
            && words.last().is_some_and(|last| last == "N")
        {
            continue;
        }
        words.push(without_numbers(word));
    }
    words.join(" ")
}

fn without_numbers(word: &str) -> String {
    let (mut kept, mut run) = (String::new(), String::new());
    for letter in word.chars().chain(['\n']) {
        if letter.is_ascii_hexdigit() || (letter == '.' && !run.is_empty()) {
            run.push(letter);
            continue;
        }
        let is_id = run.len() >= DIGITS_OF_AN_ID && !run.contains('.');
        let is_number = run.starts_with(|first: char| first.is_ascii_digit())
            && run
                .chars()
                .all(|digit| digit.is_ascii_digit() || digit == '.');
        kept.push_str(if is_id || is_number { "N" } else { &run });
        run.clear();
        kept.push(letter);
    }
    kept.trim_end().to_owned()
}

#[test]
fn values_differ_and_words_do_not() {
    let page = ["job  podman  0  1.5 GiB  running  -".to_owned()];
    assert!(is_printed(&page, &["job podman 1 64 MiB running -"]));
    assert!(!is_printed(&page, &["job podman 1 64 MiB paused -"]));
    assert!(!is_printed(&page, &[]));
    let page = ["expected: 3.3 s, 1.1 GiB, by the last 2".to_owned()];
    assert!(is_printed(
        &page,
        &["expected: 0.8 s, 128 MiB, by the last 1"]
    ));
    let any = ["...".to_owned(), "written".to_owned()];
    assert!(is_printed(&any, &["+++", "@@", "written"]));
    assert!(!is_printed(&any, &["+++", "written", "more"]));
    let id = "sha256:2939aa3218515d8b8b1200cc03970777c1775ca62114e06083df06468ac2bae0";
    assert_eq!(without_values(id), "sha256:N");
    assert_eq!(without_values("GPU-98ac7c6d"), "GPU-N");
}

#[test]
fn commands_go_on_after_a_backslash() {
    let block = "$ podman run \\\n    job\nabc\n$ podman rm job\n";
    let found = shown(block);
    assert_eq!(found[0].command, "podman run \\\n    job");
    assert_eq!(found[0].output, ["abc"]);
    assert!(found[1].output.is_empty());
}
