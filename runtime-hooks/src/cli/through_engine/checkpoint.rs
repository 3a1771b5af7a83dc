//! `stasis checkpoint`: of a container of any engine, by its name.

use std::path::{Path, PathBuf};

use clap::Args;
use stasis_config::Settings;

use super::attempt::Attempt;
use super::call::Record;
use super::checkpoint_way::{CheckpointWay, Wanted};
use super::dry_run::DryRun;
use super::outcome::{Outcome, Word};
use super::progress::{ProgressLine, Shown};
use super::report::{REFUSED, report, shown};
use crate::cli::answer::{Format, Output, name, show};
use crate::cli::command_error::CommandError;
use crate::cli::locate::engine::Known;
use crate::cli::locate::{Located, locate};
use crate::cli::log::past::Past;
use crate::error::kind::State;
use crate::operation::directory_of;
use crate::operation::verb::Verb;
use crate::request::AfterDump;

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
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        self.output.format()
    }

    fn after(&self) -> AfterDump {
        match self.leave_running {
            true => AfterDump::LeaveRunning,
            false => AfterDump::Exit,
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
        return Ok(if answer.would_begin() { 0 } else { REFUSED });
    }
    let outcome = match way {
        Ok(way) => {
            let predicted = past.predicted(located.container.id());
            let predicted = predicted.map(|predicted| predicted.seconds);
            let shown = shown(arguments.progress, arguments.format());
            let line = ProgressLine::new(&arguments.container, shown, predicted);
            if arguments.format() == Format::Text {
                println!("{}", name(&way.command));
            }
            checkpoint(settings, &located, begun, way, line)
        }
        Err(no_way) => begun.refused(no_way.to_string(), no_way.kind()),
    };
    let success = success(arguments, &known, &outcome);
    Ok(report(
        &outcome,
        Verb::Checkpoint,
        &success,
        arguments.format(),
    )?)
}

fn success(arguments: &Arguments, known: &Known, outcome: &Outcome) -> String {
    let container = name(&arguments.container);
    let (measure, image) = (outcome.measure(), outcome.image.as_ref());
    let image = image.map(|image| format!(", into {}", name(image)));
    let image = image.unwrap_or_default();
    let kept = known.engine.map(|engine| format!("; {engine} knows of it"));
    let kept = kept.unwrap_or_default();
    let now = match arguments.after() {
        AfterDump::LeaveRunning => "it goes on",
        AfterDump::Exit => "it has ended",
    };
    format!("{container}: checkpointed{measure}{image}{kept}; {now}")
}

fn checkpoint(
    settings: &Settings,
    located: &Located,
    outcome: Outcome,
    way: CheckpointWay,
    line: ProgressLine,
) -> Outcome {
    let id = located.container.id();
    let record = directory_of(&settings.paths.state_dir, &located.root, id);
    let attempt = Attempt {
        settings,
        verb: Verb::Checkpoint,
        id: Some(id),
        record: Record::At(&record),
    };
    let snapshot = located.container.snapshot();
    let uses_gpu = snapshot.is_ok_and(|snapshot| !snapshot.candidates().is_empty());
    let state = || match located.container.init().is_gone() {
        true => State::Ended,
        false => State::Unharmed,
    };
    let mut outcome = attempt.make(&way.command, outcome, line, state);
    if outcome.result != Word::Done {
        return outcome;
    }
    outcome.image = way.image.or_else(|| {
        let path = outcome.image_path();
        path.map(|path| path.display().to_string())
    });
    if uses_gpu && !outcome.is_logged() {
        let note = "no checkpoint of it is in operations.log: its engine uses another runtime than \
                    stasis, and the image has no GPU contents";
        outcome.notes.push(note.to_owned());
    }
    outcome
}
