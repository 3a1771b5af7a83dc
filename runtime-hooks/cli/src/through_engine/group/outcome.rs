//! The outcome for a group.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use stasis_engine::error::chain;
use stasis_engine::error::kind::State;
use stasis_engine::request::AfterDump;
use stasis_group::parent::Why;

use super::row::Row;
use crate::answer::amount::counted;
use crate::answer::exit::Exit;
use crate::answer::{Format, answer, name, show_error, write_line};
use crate::through_engine::outcome::Word;

/// The outcome.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    /// The result. `failed` also if all images are complete, and a container did not go on or end.
    result: Word,
    /// Whether all images are complete; if not, there are none. Of a restore: whether all
    /// containers are restored; if not, none is.
    complete: bool,
    /// The containers' state after a checkpoint; `None` for a restore.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<AfterDump>,
    directory: PathBuf,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    containers: Vec<Row>,
}

impl Group {
    /// Makes the outcome of a checkpoint that leaves the containers so, or of a restore.
    pub(super) fn of(
        after: Option<AfterDump>,
        directory: &Path,
        why: Option<&Why>,
        containers: Vec<Row>,
    ) -> Self {
        let result = match why {
            None if containers.iter().all(Row::is_well) => Word::Done,
            Some(Why::Cancelled) => Word::Cancelled,
            _ => Word::Failed,
        };
        Self {
            result,
            complete: why.is_none(),
            after,
            directory: directory.to_owned(),
            seconds: 0.0,
            kind: why.map(|why| why.kind().to_string()),
            error: why.map(|why| chain(why)),
            containers,
        }
    }

    pub(super) fn taking(self, time: Duration) -> Self {
        Self {
            seconds: time.as_secs_f64(),
            ..self
        }
    }

    /// Returns the states of a container after an operation that was taken back: a container that
    /// was to be restored does not exist, or existed before.
    fn taken_back(&self) -> &'static [State] {
        match self.after {
            Some(_) => &[State::Unharmed],
            None => &[State::Ended, State::Unharmed],
        }
    }

    /// Formats the last line.
    fn text(&self) -> String {
        let taken_back = self.taken_back();
        let told = match (self.result == Word::Done, self.complete) {
            (true, _) => self.success(),
            (false, true) => self.incomplete(),
            (false, false) => {
                let mut containers = self.containers.iter();
                self.nothing(containers.any(|row| row.is_not(taken_back)))
            }
        };
        format!("{}: {told}", counted(self.containers.len(), "container"))
    }

    fn success(&self) -> String {
        let (seconds, place) = (self.seconds, name(&self.directory.display()));
        let now = match self.after {
            None => return format!("restored together in {seconds:.1} s, from {place}; all run"),
            Some(AfterDump::LeaveRunning) => "all keep running",
            Some(AfterDump::Exit) => "all have ended",
        };
        format!("checkpointed together in {seconds:.1} s, into {place}; {now}")
    }

    fn incomplete(&self) -> String {
        let place = name(&self.directory.display());
        match self.after {
            None => "all were restored, but not all run, see above".to_owned(),
            Some(_) => format!(
                "checkpointed together, and all images in {place} are complete; not all containers \
                 are as requested, see above"
            ),
        }
    }

    fn nothing(&self, is_some_left: bool) -> String {
        match (self.after, is_some_left) {
            (None, false) => "none is restored, no restored process is left, and the images are \
                              unchanged"
                .to_owned(),
            (None, true) => "none is restored, and some processes are left, see above".to_owned(),
            (Some(_), false) => "none is checkpointed, and all are as before".to_owned(),
            (Some(_), true) => {
                "none is checkpointed, and not all are as before, see above".to_owned()
            }
        }
    }
}

/// Shows the outcome and returns the exit code.
pub(super) fn report(group: &Group, format: Format) -> io::Result<Exit> {
    match format {
        Format::Json => answer(group)?,
        Format::Text => {
            let taken_back = group.taken_back();
            let containers = group.containers.iter();
            for failure in containers.filter_map(|row| row.failure(taken_back)) {
                show_error(&failure);
            }
            if let (Some(error), Some(kind)) = (&group.error, &group.kind) {
                show_error(&format!("{error} [{kind}]"));
            }
            write_line(&group.text())?;
        }
    }
    Ok(group.result.exit())
}
