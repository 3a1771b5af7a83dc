//! How the outcome of an operation is told.

use std::io;

use super::outcome::{Outcome, Word};
use super::progress::Shown;
use crate::cli::answer::{Format, answer, name, show_error, write_line};
use crate::operation::verb::Verb;

/// How far an operation is belongs to no document.
pub(super) fn shown(wanted: Shown, format: Format) -> Shown {
    match format {
        Format::Json => Shown::Never,
        Format::Text => wanted,
    }
}

/// Tells the outcome; the exit code.
///
/// # Errors
/// It cannot be written.
pub(super) fn report(
    outcome: &Outcome,
    verb: Verb,
    success: &str,
    format: Format,
) -> io::Result<u8> {
    match (format, outcome.failure()) {
        (Format::Json, _) => answer(outcome)?,
        (Format::Text, None) => {
            write_line(&success)?;
            outcome
                .note_lines()
                .try_for_each(|note| write_line(&note))?;
        }
        (Format::Text, Some(failure)) => {
            show_error(&failure);
            if outcome.result == Word::Cancelled {
                let name = name(&outcome.name);
                write_line(&format!("{name}: {}", taken_back(outcome, verb)))?;
            }
        }
    }
    Ok(outcome.result.exit_code())
}

fn taken_back(outcome: &Outcome, verb: Verb) -> &'static str {
    match verb {
        Verb::Checkpoint if outcome.is_unharmed() => {
            "the checkpoint was taken back, and it is as it was"
        }
        Verb::Restore if !outcome.is_lost() => {
            "the restore was taken back, and nothing is left of it"
        }
        _ => "it is not as it was",
    }
}
