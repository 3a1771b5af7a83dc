//! A command of an engine, or of a low-level runtime.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Serialize, Serializer};
use stasis_engine::low_level::criu_program;
use stasis_host::output::{file_for_output, output_in};

use crate::programs::end_within;

/// The longest wait for the answer of an engine.
const PATIENCE: Duration = Duration::from_secs(20);
/// More bytes than any list that is read.
const MOST_ANSWERED: u64 = 16 << 20;
/// The most bytes that are passed on of its message on failure.
const MOST_SAID: u64 = 400;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EngineCommand {
    pub(super) called: Called,
    program: PathBuf,
    arguments: Vec<OsString>,
}

/// The kind of program called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    /// The client of an engine: another process carries the operation out.
    Client,
    /// The runtime, which carries it out itself. Its standard streams may become a container's.
    Runtime,
}

/// Why a command has not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// It cannot be called.
    #[error("cannot be called: {0}")]
    Io(#[from] io::Error),
    /// It has failed.
    #[error("failed: {0}")]
    Said(String),
    /// It has not answered in time: its daemon may hang.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Late,
}

impl EngineCommand {
    pub(super) fn of_client(program: &str, arguments: &[&str]) -> Self {
        Self {
            called: Called::Client,
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
        }
    }

    pub(super) fn of_runtime(program: PathBuf) -> Self {
        Self {
            called: Called::Runtime,
            program,
            arguments: Vec::new(),
        }
    }

    pub(super) fn with(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(super) fn with_all<A: Into<OsString>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Makes the command, ready to be started.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        // podman looks for CRIU before it calls the runtime.
        if self.called == Called::Client {
            criu_program::give(&mut command);
        }
        command
    }

    /// Runs a command that changes nothing, and returns its standard output.
    ///
    /// # Errors
    /// [`NoAnswer`]; a command whose daemon hangs is killed.
    pub(super) fn answer(&self) -> Result<String, NoAnswer> {
        let (answer, said) = (file_for_output()?, file_for_output()?);
        let mut command = self.command();
        command.stdin(Stdio::null()).stderr(said.try_clone()?);
        let mut child = command.stdout(answer.try_clone()?).spawn()?;
        let status = end_within(PATIENCE, &mut child)?.ok_or(NoAnswer::Late)?;
        match status.success() {
            true => Ok(output_in(&answer, MOST_ANSWERED)?),
            false => Err(NoAnswer::Said(output_in(&said, MOST_SAID)?)),
        }
    }

    fn words(&self) -> Vec<String> {
        let arguments = self.arguments.iter().map(|word| word.to_string_lossy());
        let words = std::iter::once(self.program.to_string_lossy()).chain(arguments);
        words.map(|word| word.into_owned()).collect()
    }
}

impl Serialize for EngineCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words().serialize(serializer)
    }
}

/// Formats the command for a shell.
impl fmt::Display for EngineCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words().iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_that_of_a_success() {
        let answer = |arguments: &[&str]| EngineCommand::of_client("sh", arguments).answer();
        assert_eq!(answer(&["-c", "echo job"]).unwrap(), "job");
        let fails = answer(&["-c", "echo job; echo no such thing >&2; exit 1"]);
        assert_eq!(fails.unwrap_err().to_string(), "failed: no such thing");
        let nowhere = EngineCommand::of_client("/nowhere", &[]).answer();
        assert!(matches!(nowhere, Err(NoAnswer::Io(_))), "{nowhere:?}");
    }

    #[test]
    fn a_command_can_be_copied_into_a_shell() {
        let command = EngineCommand::of_client("ctr", &["-n", "two words", "it's", ""]);
        assert_eq!(command.to_string(), r"ctr -n 'two words' 'it'\''s' ''");
        let json = serde_json::to_string(&command.with("x")).unwrap();
        assert_eq!(json, r#"["ctr","-n","two words","it's","","x"]"#);
    }
}
