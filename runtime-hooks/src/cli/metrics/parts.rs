//! What could be read, and what could not: nothing that is unreadable hides the rest.

use super::text::Family;
use crate::cli::answer::show_note;
use crate::cli::command_error::CommandError;
use crate::error::chain;

/// Which parts could be read.
#[derive(Debug)]
pub(super) struct Parts {
    family: Family,
}

impl Parts {
    pub(super) fn new() -> Self {
        Self {
            family: Family::gauge(
                "stasis_read_success",
                "1 for each part of these metrics that could be read, 0 for one whose metrics are \
                 missing or too low.",
            ),
        }
    }

    /// Takes down whether a part could be read; why it could not goes to standard error.
    pub(super) fn read<T>(&mut self, part: &str, read: Result<T, CommandError>) -> Option<T> {
        let success = f64::from(u8::from(read.is_ok()));
        self.family.add(&[("part", part)], success);
        read.inspect_err(|error| show_note(&chain(error))).ok()
    }

    pub(super) fn family(self) -> Family {
        self.family
    }
}
