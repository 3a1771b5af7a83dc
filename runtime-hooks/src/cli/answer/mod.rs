//! How the operator's program answers.

pub(crate) mod amount;
pub(crate) mod table;

use std::fmt::Display;
use std::io;

use clap::Args;
use serde::Serialize;
use stasis_linux::escape::escaped;

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs (`--json`).
    Json,
}

/// How a command answers: the option of every one that has something to show.
#[derive(Debug, Clone, Copy, Args)]
pub struct Output {
    /// Print the answer as one JSON document.
    #[arg(long)]
    json: bool,
}

impl Output {
    /// The format that was asked for.
    #[must_use]
    pub fn format(self) -> Format {
        match self.json {
            true => Format::Json,
            false => Format::Text,
        }
    }
}

/// Shows a report.
///
/// # Errors
/// It cannot be written as JSON.
pub fn show(report: &(impl Serialize + Display), format: Format) -> io::Result<()> {
    match format {
        Format::Json => answer(report)?,
        Format::Text => println!("{}", lines(report)),
    }
    Ok(())
}

/// Shows a list, a line each.
///
/// # Errors
/// It cannot be written as JSON.
pub fn show_all(found: &[impl Serialize + Display], format: Format) -> io::Result<()> {
    match format {
        Format::Json => answer(&found)?,
        Format::Text => found.iter().for_each(|found| println!("{}", lines(found))),
    }
    Ok(())
}

/// Shows an error on standard error.
pub fn show_error(text: &str) {
    eprintln!("stasis: {}", name(&text));
}

/// What others have named (a container, a path, whatever an image says of itself), for a report in
/// text: it neither ends a line nor acts on a terminal.
pub(crate) fn name(named: &impl Display) -> String {
    escaped(named.to_string().as_bytes())
}

/// A report, of whose lines none acts on a terminal, also where a name went into it as it is.
fn lines(report: &impl Display) -> String {
    let text = report.to_string();
    text.split('\n')
        .map(|line| name(&line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Writes the answer of a command with `--json`.
///
/// # Errors
/// It cannot be written as JSON.
pub fn answer(answer: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(answer)?;
    println!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_neither_ends_a_line_nor_acts_on_a_terminal() {
        let forged = "job\na restore would begin\u{1b}[2J\u{202e}";
        let shown = "job\\na restore would begin\\u{1b}[2J\\u{202e}";
        assert_eq!(name(&forged), shown);
        let report = format!("image {}\n  of {forged}", name(&forged));
        let text = lines(&report);
        assert!(text.starts_with(&format!("image {shown}\n  of job\n")));
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}
