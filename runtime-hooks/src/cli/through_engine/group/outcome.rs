//! What has become of a group.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::members::Member;
use super::parent::Why;
use crate::checkpoint::member::Ended;
use crate::cli::answer::{Format, answer, name, show_error};
use crate::cli::locate::engine::Engine;
use crate::cli::through_engine::outcome::Word;
use crate::cli::through_engine::report::{CANCELLED, REFUSED};
use crate::error::chain;
use crate::error::kind::{Kind, State};
use crate::request::AfterDump;

/// What has become of it.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    /// `done` also of a group that is complete, and of which a container did not go on or end.
    result: Word,
    /// Whether all images are complete; if not, there are none.
    complete: bool,
    after: AfterDump,
    directory: PathBuf,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    containers: Vec<Row>,
}

/// What has become of one of its containers.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    container: String,
    engine: Option<Engine>,
    /// `None` without a checkpoint.
    image: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Its state, if something has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

impl Group {
    pub(super) fn of(
        after: AfterDump,
        directory: &Path,
        members: &[Member],
        why: Option<&Why>,
        ended: Vec<Option<Ended>>,
    ) -> Self {
        let complete = why.is_none();
        let rows = members.iter().zip(ended);
        let containers: Vec<Row> = rows
            .map(|(member, ended)| Row::of(member, ended, complete))
            .collect();
        let is_well = containers.iter().all(|row| row.error.is_none());
        let result = match why {
            None if is_well => Word::Done,
            Some(Why::Cancelled) => Word::Cancelled,
            _ => Word::Failed,
        };
        Self {
            result,
            complete,
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

    /// The last line.
    fn text(&self) -> String {
        let (count, seconds) = (self.containers.len(), self.seconds);
        let into = name(&self.directory.display());
        let now = match self.after {
            AfterDump::LeaveRunning => "they go on",
            AfterDump::Exit => "they have ended",
        };
        if self.result == Word::Done {
            return format!(
                "{count} containers: checkpointed together in {seconds:.1} s, into {into}; {now}"
            );
        }
        if self.complete {
            return format!(
                "{count} containers: checkpointed together, and all images in {into} are \
                 complete; not every container is as was asked for"
            );
        }
        let unharmed = State::Unharmed.name();
        let changed = self.containers.iter();
        let mut changed =
            changed.filter(|row| row.state.as_deref().is_some_and(|now| now != unharmed));
        match changed.next() {
            None => format!("{count} containers: none is checkpointed, and all are as they were"),
            Some(_) => format!(
                "{count} containers: none is checkpointed, and not all are as they were, see above"
            ),
        }
    }
}

impl Row {
    fn of(member: &Member, ended: Option<Ended>, complete: bool) -> Self {
        let ended = ended.unwrap_or_default();
        Self {
            name: member.name.clone(),
            container: member.located.container.id().to_owned(),
            engine: member.known.engine,
            image: complete.then(|| member.image.clone()),
            error: ended.error,
            kind: ended.kind,
            state: ended.state,
        }
    }

    /// Not of one that only shares the outcome of others.
    fn failure(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let is_others = self.kind.as_deref() == Some(Kind::GroupAbandoned.name())
            && self.state.as_deref() == Some(State::Unharmed.name());
        (!is_others).then(|| format!("{}: {error}", self.name))
    }
}

/// Tells the outcome; the exit code.
///
/// # Errors
/// It cannot be written.
pub(super) fn report(group: &Group, format: Format) -> io::Result<u8> {
    match format {
        Format::Json => answer(group)?,
        Format::Text => {
            for failure in group.containers.iter().filter_map(Row::failure) {
                show_error(&failure);
            }
            if let (Some(error), Some(kind)) = (&group.error, &group.kind) {
                show_error(&format!("{error} [{kind}]"));
            }
            println!("{}", group.text());
        }
    }
    Ok(match group.result {
        Word::Done => 0,
        Word::Failed => REFUSED,
        Word::Cancelled => CANCELLED,
    })
}
