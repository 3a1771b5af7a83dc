//! `stasis checkpoint`: of a container of any engine, by its name.

use std::path::{Path, PathBuf};

use clap::Args;
use stasis_config::Settings;

use super::call::{Expected, call, until_undone};
use super::checkpoint_way::{CheckpointWay, Wanted};
use super::dry_run::DryRun;
use super::outcome::{Outcome, Word};
use super::progress::{ProgressLine, Shown};
use crate::cli::answer::{Format, answer, name, show, show_error};
use crate::cli::command_error::CommandError;
use crate::cli::locate::engine::Known;
use crate::cli::locate::{Located, locate};
use crate::cli::log::line::{Line, read};
use crate::cli::log::past::Past;
use crate::error::kind::{Diagnosis, Kind, State};
use crate::operation::directory_of;
use crate::operation::progress::UnderWay;
use crate::request::AfterDump;

/// A checkpoint, by its name in `operations.log`.
const VERB: &str = "checkpoint";
const FAILED: u8 = 1;
/// As shells have it of a program that SIGINT has ended.
pub(super) const CANCELLED: u8 = 130;

/// The container, and where its image shall be.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The container, by id (or the beginning of it) or name.
    #[arg(value_name = "ID|NAME")]
    container: String,
    /// Where the image shall be: a directory of ctr or a low-level runtime, an archive of podman or
    /// crictl, a name of Docker or ctr. Without it: with the container, or by a new name.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Let the container go on.
    #[arg(short = 'R', long)]
    leave_running: bool,
    /// Only tell whether it would begin, what is in the way, and what it is expected to take.
    #[arg(long)]
    dry_run: bool,
    /// Whether a line shows how far it is.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Shown::Auto)]
    progress: Shown,
    /// The root of its low-level runtime; without it the usual roots are searched.
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Print the outcome as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        Format::of(self.json)
    }

    fn after(&self) -> AfterDump {
        match self.leave_running {
            true => AfterDump::LeaveRunning,
            false => AfterDump::Exit,
        }
    }

    fn shown(&self) -> Shown {
        match self.format() {
            Format::Json => Shown::Never,
            Format::Text => self.progress,
        }
    }
}

/// Carries the command out; its exit code. `config` is the file of the settings, if one was named.
///
/// # Errors
/// The container is not there, or cannot be looked at; what has become of it is in the outcome.
pub fn run(
    settings: &Settings,
    arguments: &Arguments,
    config: Option<&Path>,
) -> Result<u8, CommandError> {
    let located = locate(&arguments.container, arguments.root.as_deref())?;
    let known = located.known();
    let wanted = Wanted {
        image: arguments.image.as_deref(),
        after: arguments.after(),
        config,
    };
    let way = CheckpointWay::of(settings, &located, known.engine, wanted);
    let past = Past::read(&settings.paths.log_dir).map_err(CommandError::Log)?;
    let id = Some(located.container.id().to_owned());
    let begun = Outcome::begun(&arguments.container, id, &known);
    if arguments.dry_run {
        let answer = DryRun::of(settings, &located, begun, way, wanted.after, &past)?;
        show(&answer, arguments.format())?;
        return Ok(if answer.would_begin() { 0 } else { FAILED });
    }
    let outcome = match way {
        Ok(way) => {
            let predicted = past.predicted(located.container.id());
            let predicted = predicted.map(|predicted| predicted.seconds);
            let line = ProgressLine::new(&arguments.container, arguments.shown(), predicted);
            if arguments.format() == Format::Text {
                println!("{}", name(&way.command));
            }
            checkpoint(settings, &located, begun, way, line)
        }
        Err(no_way) => begun.refused(no_way.to_string(), no_way.kind()),
    };
    report(arguments, &known, &outcome)?;
    Ok(match outcome.result {
        Word::Done => 0,
        Word::Failed => FAILED,
        Word::Cancelled => CANCELLED,
    })
}

fn report(arguments: &Arguments, known: &Known, outcome: &Outcome) -> Result<(), CommandError> {
    match (arguments.format(), outcome.failure()) {
        (Format::Json, _) => answer(outcome)?,
        (Format::Text, Some(failure)) => {
            show_error(&failure);
            if outcome.result == Word::Cancelled && outcome.is_unharmed() {
                let container = name(&arguments.container);
                println!("{container}: the checkpoint was taken back, and it is as it was");
            }
        }
        (Format::Text, None) => println!("{}", success(arguments, known, outcome)),
    }
    Ok(())
}

fn success(arguments: &Arguments, known: &Known, outcome: &Outcome) -> String {
    let container = name(&arguments.container);
    let (measure, image) = (outcome.measure(), outcome.image.as_ref());
    let image = image.map(|image| format!(", into {}", name(image)));
    let image = image.unwrap_or_default();
    let engine = known.engine;
    let kept = engine.map(|engine| format!("; {engine} knows of it"));
    let kept = kept.unwrap_or_default();
    let now = match arguments.after() {
        AfterDump::LeaveRunning => "it goes on",
        AfterDump::Exit => "it has ended",
    };
    let first = format!("{container}: checkpointed{measure}{image}{kept}; {now}");
    let mut lines = vec![first];
    lines.extend(outcome.note_lines());
    lines.join("\n")
}

fn checkpoint(
    settings: &Settings,
    located: &Located,
    mut outcome: Outcome,
    way: CheckpointWay,
    mut line: ProgressLine,
) -> Outcome {
    let (id, log_dir) = (located.container.id(), &settings.paths.log_dir);
    let record = directory_of(&settings.paths.state_dir, &located.root, id);
    outcome.command = Some(way.command.clone());
    let other = UnderWay::read(&record).ok().flatten();
    if let Some(other) = other.filter(|other| other.is_alive().unwrap_or(true)) {
        let (verb, pid) = (&other.operation, other.pid);
        let error = format!("a {verb} of it is under way (process {pid}); nothing was done");
        return outcome.refused(error, Kind::Busy);
    }
    let uses_gpu = located.container.snapshot();
    let uses_gpu = uses_gpu.is_ok_and(|snapshot| !snapshot.candidates().is_empty());
    let before = logged(log_dir, id, VERB);
    let expected = Expected {
        verb: VERB,
        record: Some(&record),
    };
    let ended = match call(&way.command, expected, &mut line) {
        Ok(ended) => ended,
        Err(error) => {
            let error = format!("{} cannot be called: {error}", way.command);
            return outcome.refused(error, Kind::Engine);
        }
    };
    let mut after = logged(log_dir, id, VERB);
    let line = if after.len() > before.len() {
        after.pop()
    } else {
        None
    };
    let is_logged = line.is_some();
    if let Some(line) = line {
        outcome.told_by(line);
    }
    if ended.is_success() {
        outcome.image = way.image.or_else(|| {
            let path = outcome.image_path();
            path.map(|path| path.display().to_string())
        });
        if uses_gpu && !is_logged {
            let note = "no checkpoint of it is in operations.log: its engine uses another runtime \
                        than stasis, and the image has no GPU contents";
            outcome.notes.push(note.to_owned());
        }
        return outcome.without_error();
    }
    until_undone(&record, settings.deadlines.stalled());
    let kind = match ended.was_told_to_end {
        true => Kind::Cancelled,
        false => Kind::Engine,
    };
    let diagnosis = Diagnosis::new(kind, state_of(located));
    outcome.failed(
        || format!("{}: {}", way.command, ended.failure()),
        diagnosis,
    )
}

/// The state of a container of which nothing is to be undone.
fn state_of(located: &Located) -> State {
    match located.container.init().is_gone() {
        true => State::Ended,
        false => State::Unharmed,
    }
}

/// The lines of the log about such operations on a container, the oldest first. What cannot be read
/// is not known.
pub(super) fn logged(log_dir: &Path, id: &str, verb: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let _ = read(log_dir, |line| {
        if line.container == id && line.operation == verb {
            lines.push(line);
        }
    });
    lines
}
