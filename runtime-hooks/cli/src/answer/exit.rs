//! The exit codes of `stasis`: all of them are here, and docs/commands.md has their table.

/// How a command has ended, as scripts see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It has done, or shown, what was asked for, and the answer to a question is yes.
    Done,
    /// It was refused or has failed, at least in part, or the answer to a question is no.
    Refused,
    /// The command line is wrong, there is no such container, or nothing can be read: nothing was
    /// changed.
    Unable,
    /// A signal has ended a checkpoint or a restore. Shells report SIGINT so.
    Cancelled,
}

impl Exit {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Done, Self::Refused, Self::Unable, Self::Cancelled];

    /// Returns the code of the process.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Refused => 1,
            Self::Unable => 2,
            Self::Cancelled => 130,
        }
    }

    /// Returns the code of the answer to a question.
    #[must_use]
    pub const fn of(answer: bool) -> Self {
        match answer {
            true => Self::Done,
            false => Self::Refused,
        }
    }

    /// Returns the code of a command that is done if all of these are well.
    pub(crate) fn of_all(mut well: impl Iterator<Item = bool>) -> Self {
        Self::of(well.all(|is_well| is_well))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_each_code_once() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let text = std::fs::read_to_string(document).unwrap();
        let (_, table) = text
            .split_once("\n| exit code | |\n| --- | --- |\n")
            .unwrap();
        let rows = table.lines().map_while(|line| line.strip_prefix("| "));
        let codes: Vec<&str> = rows
            .filter_map(|row| Some(row.split_once(" | ")?.0))
            .collect();
        assert_eq!(codes, Exit::ALL.map(|exit| exit.code().to_string()));
    }
}
