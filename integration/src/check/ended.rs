//! How a program ends.

use std::process::ExitCode;

use anyhow::Result;

/// Prints an error in one line, with its causes. `main` itself would print a stack trace where
/// `RUST_BACKTRACE` is set.
#[must_use]
pub fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
