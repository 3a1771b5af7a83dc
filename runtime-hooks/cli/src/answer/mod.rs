//! How the operator's program answers.

pub(crate) mod amount;
pub(crate) mod table;

use std::fmt::Display;
use std::io::{self, Write};

use clap::Args;
use serde::Serialize;
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
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
        Format::Text => write_line(&lines(report))?,
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
///
/// # Errors
/// It cannot be written as JSON.
pub fn answer(answer: &impl Serialize) -> io::Result<()> {
    write_line(&serde_json::to_string_pretty(answer)?)
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
