//! `stasis checkpoint`: checkpoints a container of any engine, by its name.

use std::path::{Path, PathBuf};

use clap::Args;
use stasis_config::Settings;
use stasis_engine::error::kind::{Kind, State};
use stasis_engine::operation::directory_of;
use stasis_engine::operation::verb::Verb;
use stasis_engine::preflight::capabilities::Capabilities;
use stasis_engine::request::AfterDump;
use stasis_locate::engine::Known;
use stasis_locate::{Located, locate};

use super::attempt::Attempt;
use super::call::Record;
use super::checkpoint_way::{CheckpointWay, Wanted};
use super::criu_options::CriuArguments;
use super::dry_run::DryRun;
use super::group::{self, GroupWanted};
use super::outcome::{Outcome, Word, report};
use super::progress::{ProgressLine, Shown, shown};
use crate::answer::exit::Exit;
use crate::answer::{Format, Output, name, show, write_line};
use crate::check::by_engine::admit;
use crate::check::check_by_engine;
use crate::command_error::{CommandError, GroupError};
use crate::log::past::Past;

/// The reason for a failure that `operations.log` does not have.
const NOT_OURS: &str = "the engine did not call stasis: it refused the checkpoint itself, or uses \
    another runtime for this container (start it with `--runtime stasis`)";

/// Checkpoint a container with the command of its engine.
///
/// The command is printed first. The engine knows the checkpoint, and can restore it with its own
/// command or with `stasis restore`. Ctrl-C undoes the checkpoint: the container runs as before.
///
/// Exit code 0: the checkpoint is made, or with --dry-run would begin; 1: it was refused or failed,
/// or would be refused; 2: there is no such container, or it cannot be read; 130: a signal ended
/// the checkpoint, and the container runs as before unless the message tells otherwise.
#[derive(Debug, Args)]
#[command(
    override_usage = "stasis checkpoint [OPTIONS] <ID|NAME>\n       stasis checkpoint [OPTIONS] \
                      --group --into <DIR> <ID|NAME>...\n       stasis checkpoint [OPTIONS] --pod \
                      <POD> --into <DIR>"
)]
pub struct Arguments {
    /// The container: its id, the beginning of its id, or its name; several with
    /// --group.
    #[arg(value_name = "ID|NAME", required_unless_present = "pod")]
    containers: Vec<String>,
    /// Checkpoint the containers together: their GPU work stops at once. Either all images are
    /// complete, or there is none and all containers run as before. This calls no engine: engines
    /// have no such command.
    #[arg(long, requires = "into", conflicts_with = "image")]
    group: bool,
    /// Checkpoint the containers of a pod together: NAMESPACE/POD, or POD.
    #[arg(long, value_name = "POD", requires = "into", conflicts_with_all = ["image", "containers"])]
    pod: Option<String>,
    /// The directory for the images of a group, with a directory for each. It must not hold another
    /// group.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// The place of the image. podman and crictl: an archive. Docker: a name. ctr: a name, or a
    /// directory if it begins with / or a dot. Without an engine: a directory. Default: podman and
    /// Docker keep the image with the container, and ctr under a new name.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Keep the container running after the checkpoint.
    #[arg(short = 'R', long)]
    leave_running: bool,
    #[command(flatten)]
    criu: CriuArguments,
    /// Change nothing. Show whether the checkpoint would begin, its blockers, and the time and room
    /// to expect.
    #[arg(long)]
    dry_run: bool,
    /// When to show progress.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Shown::Auto)]
    progress: Shown,
    /// The root of its low-level runtime. Default: all usual roots.
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    fn is_of_group(&self) -> bool {
        self.group || self.pod.is_some()
    }

    fn after(&self) -> AfterDump {
        match self.leave_running {
            true => AfterDump::LeaveRunning,
            false => AfterDump::Exit,
        }
    }
}

/// Carries the command out and returns the exit code. `config`: the settings' file, if named.
///
/// # Errors
/// The container does not exist, or cannot be inspected; a failed checkpoint is in the outcome.
pub fn run(
    settings: &Settings,
    arguments: &Arguments,
    config: Option<&Path>,
) -> Result<Exit, CommandError> {
    let container = match arguments.containers.as_slice() {
        _ if arguments.is_of_group() => return run_group(settings, arguments, config),
        [one] => one,
        several => return Err(GroupError::NotAsked(several.len()).into()),
    };
    let located = locate(container, arguments.root.as_deref())?;
    let options = arguments.criu.options();
    let known = located.known();
    let wanted = Wanted {
        image: arguments.image.as_deref(),
        after: arguments.after(),
        options: &options,
        config,
    };
    let way = CheckpointWay::of(settings, &located, known.engine, wanted);
    let past = Past::read(&settings.paths.log_dir).map_err(CommandError::Log)?;
    let id = Some(located.container.id().to_owned());
    let mut begun = Outcome::begun(container, id, known.engine);
    if arguments.dry_run {
        let report = check_by_engine(settings, &located, &options)?;
        let answer = DryRun::of(settings, &located, report, begun, way, wanted.after, &past)?;
        show(&answer, arguments.output.format())?;
        return Ok(Exit::of(answer.would_begin()));
    }
    let outcome = match (way, admit(settings, &located)) {
        // Engines look for CRIU themselves, before stasis can tell what is wrong.
        (Ok(way), Ok(())) if let Err(unusable) = Capabilities::probe(settings).criu.usable() => {
            begun.command = Some(way.command);
            begun.refused(format!("{unusable}; nothing was done"), Kind::Criu)
        }
        (Ok(way), Ok(())) => {
            let predicted = past.predicted(Verb::Checkpoint, located.container.id());
            let predicted = predicted.map(|predicted| predicted.seconds);
            let shown = shown(arguments.progress, arguments.output.format());
            let line = ProgressLine::new(container, shown, predicted);
            if arguments.output.format() == Format::Text {
                write_line(&name(&way.command))?;
            }
            checkpoint(settings, &located, begun, way, line)
        }
        (_, Err(blockers)) => begun.refused(blockers.to_string(), Kind::Blocked),
        (Err(no_way), Ok(())) => begun.refused(no_way.to_string(), no_way.kind()),
    };
    let success = success(arguments, &known, &outcome);
    Ok(report(
        &outcome,
        Verb::Checkpoint,
        &success,
        arguments.output.format(),
    )?)
}

fn run_group(
    settings: &Settings,
    arguments: &Arguments,
    config: Option<&Path>,
) -> Result<Exit, CommandError> {
    let into = arguments.into.as_deref();
    let wanted = GroupWanted {
        names: &arguments.containers,
        pod: arguments.pod.as_deref(),
        into: into.unwrap_or(Path::new(".")),
        after: arguments.after(),
        options: &arguments.criu.options(),
        root: arguments.root.as_deref(),
        config,
        shown: shown(arguments.progress, arguments.output.format()),
        format: arguments.output.format(),
    };
    match arguments.dry_run {
        true => group::dry_run(settings, &wanted),
        false => group::checkpoint(settings, &wanted),
    }
}

fn success(arguments: &Arguments, known: &Known, outcome: &Outcome) -> String {
    let container = name(&outcome.name);
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
    if outcome.is_of_the_engine() && uses_gpu && !outcome.is_logged() {
        return outcome.or_because(NOT_OURS);
    }
    if outcome.result != Word::Done {
        return outcome;
    }
    outcome.image = way.image.or_else(|| {
        let path = outcome.image_path.as_ref();
        path.map(|path| path.display().to_string())
    });
    if uses_gpu && !outcome.is_logged() {
        let note = "the engine did not call stasis, but another runtime: the image has no GPU \
                    contents";
        outcome.notes.push(note.to_owned());
    }
    outcome
}
