//! How the operator's program answers.

use std::fmt::Display;
use std::io;

use serde::Serialize;

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// For programs (`--json`).
    Json,
}

impl Format {
    /// What the option `--json` asks for.
    #[must_use]
    pub fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Shows a report.
///
/// # Errors
/// It cannot be written as JSON.
pub fn show(report: &(impl Serialize + Display), format: Format) -> io::Result<()> {
    match format {
        Format::Json => answer(report)?,
        Format::Text => println!("{report}"),
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
        Format::Text => found.iter().for_each(|found| println!("{found}")),
    }
    Ok(())
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
