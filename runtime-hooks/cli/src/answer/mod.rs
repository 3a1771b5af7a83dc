//! How the operator's program answers.

pub(crate) mod amount;
pub mod exit;
pub(crate) mod names;
pub(crate) mod table;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

use clap::Args;
use serde::Serialize;
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
use stasis_engine::error::kind::{Diagnosis, Kind, State};
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
    /// Print the answer as one JSON document (its fields: docs/commands.md).
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
pub fn show(report: &(impl Serialize + Display), format: Format) -> io::Result<()> {
    match format {
        Format::Json => answer(report)?,
        Format::Text => write_line(&lines(report))?,
    }
    Ok(())
}

/// Shows a list, a line each; `list` is its name in JSON.
pub(crate) fn show_all(
    list: &'static str,
    found: &[impl Serialize + Display],
    format: Format,
) -> io::Result<()> {
    match format {
        Format::Json => answer_all(list, found)?,
        Format::Text => found
            .iter()
            .try_for_each(|found| write_line(&lines(found)))?,
    }
    Ok(())
}

/// Shows an error on standard error.
pub fn show_error(text: &str) {
    show_note(&name(&text));
}

/// Shows a line on standard error, which may be closed.
pub(crate) fn show_note(text: &str) {
    let _ = writeln!(io::stderr(), "stasis: {text}");
}

/// Writes a line of an answer to standard output.
pub(crate) fn write_line(line: &impl Display) -> io::Result<()> {
    write(&format!("{line}\n"))
}

/// Writes a part of an answer to standard output. Once its reader is gone the program ends by
/// SIGPIPE, without a word, as engines' programs do: Rust ignores that signal at its start.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.inspect_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // The buffer's rest is lost, as is the error if the signal is blocked.
            let _ = emulate_default_handler(SIGPIPE);
        }
    })
}

/// Escapes text that others have chosen (a container's name, a path, a text of an image), for a
/// report in text: it neither ends a line nor acts on a terminal.
pub(crate) fn name(named: &impl Display) -> String {
    escaped(named.to_string().as_bytes())
}

/// Escapes a report line by line: no line acts on a terminal, even if a name in it is unescaped.
fn lines(report: &impl Display) -> String {
    let text = report.to_string();
    text.split('\n')
        .map(|line| name(&line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Writes the answer of a command with `--json`.
pub fn answer(answer: &impl Serialize) -> io::Result<()> {
    write_line(&document(answer)?)
}

/// Writes the answer of a command that lists something, in a field of this name.
pub(crate) fn answer_all(list: &'static str, found: &[impl Serialize]) -> io::Result<()> {
    answer(&BTreeMap::from([(list, found)]))
}

/// Writes the answer of a command that has failed as a whole: all have the same three fields.
pub fn answer_failure(error: &str, diagnosis: Diagnosis) -> io::Result<()> {
    answer(&Failure {
        error,
        kind: diagnosis.kind,
        state: diagnosis.state,
    })
}

/// A document with `--json`. Scripts tell by `schema` what its fields mean: the number rises once a
/// field goes, or means something else.
#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    answer: &'a T,
}

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Failure<'a> {
    error: &'a str,
    kind: Kind,
    state: State,
}

fn document(answer: &impl Serialize) -> io::Result<String> {
    let schema = SCHEMA;
    Ok(serde_json::to_string_pretty(&Document { schema, answer })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_document_is_an_object_with_its_schema() {
        let compact = |document: io::Result<String>| {
            let value: serde_json::Value = serde_json::from_str(&document.unwrap()).unwrap();
            value.to_string()
        };
        let list = document(&BTreeMap::from([("images", ["a", "b"])]));
        assert_eq!(compact(list), r#"{"images":["a","b"],"schema":1}"#);
        let failure = Failure {
            error: "no container job",
            kind: Kind::NoContainer,
            state: State::Unharmed,
        };
        let failure = compact(document(&failure));
        let three =
            r#"{"error":"no container job","kind":"no-container","schema":1,"state":"unharmed"}"#;
        assert_eq!(failure, three);
    }

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
