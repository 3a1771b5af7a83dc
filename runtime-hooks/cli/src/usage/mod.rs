//! The command line as a whole: help in groups, and errors of a wrong command line.

mod groups;

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, Error};
use stasis_engine::error::kind::{Diagnosis, Kind, State};

use crate::answer::exit::Exit;
use crate::answer::{answer_failure, name};
pub use groups::{GROUPS, grouped};

/// Prints the error of a command line, or the help that it asks for, and returns the exit code.
/// With `--json` programs get the error, too.
#[must_use]
pub fn report(error: Error, command: &Command, words: &[OsString]) -> Exit {
    let error = without_escape(error, command, words);
    // No channel is left to report that this failed.
    let _ = error.print();
    if !error.use_stderr() {
        return Exit::Done;
    }
    if words.iter().any(|word| word == "--json") {
        let diagnosis = Diagnosis::new(Kind::Usage, State::Unharmed);
        let _ = answer_failure(&text_of(&error), diagnosis);
    }
    Exit::Unable
}

/// Drops clap's advice to pass an unknown option of a verb behind `--`: no container, image or
/// directory is called so. A verb without verbs of its own gets no other advice there.
fn without_escape(mut error: Error, command: &Command, words: &[OsString]) -> Error {
    let has_verb = |word: &OsString| {
        let mut verbs = command.get_subcommands();
        verbs.any(|verb| OsStr::new(verb.get_name()) == word)
    };
    if error.kind() == ErrorKind::UnknownArgument && words.iter().any(has_verb) {
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Returns the error and its advice in one line, without the usage.
fn text_of(error: &Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("Usage: ") && !line.starts_with("For "));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    name(&lines.join("; "))
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn error(line: &str) -> String {
        let push = Command::new("push").arg(Arg::new("export").long("export").num_args(0));
        let push = push.arg(Arg::new("image"));
        let command = Command::new("stasis").subcommand(push);
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = command.clone().try_get_matches_from(&words).unwrap_err();
        text_of(&without_escape(error, &command, &words))
    }

    #[test]
    fn a_misspelled_word_gets_its_neighbour_and_no_other_advice() {
        assert_eq!(
            error("stasis pusch"),
            "unrecognized subcommand 'pusch'; tip: a similar subcommand exists: 'push'"
        );
        assert_eq!(
            error("stasis push --exprot"),
            "unexpected argument '--exprot' found; tip: a similar argument exists: '--export'"
        );
        let unlike = error("stasis push --zzz");
        assert_eq!(unlike, "unexpected argument '--zzz' found");
    }
}
