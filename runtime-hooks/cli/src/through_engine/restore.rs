//! `stasis restore`: restores a container that a checkpoint has ended, by its name.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use stasis_config::Settings;
use stasis_engine::error::kind::State;
use stasis_engine::operation::verb::Verb;
use stasis_engine::request::CriuOption;
use stasis_locate::engine::Engine;
use stasis_locate::locate;

use super::attempt::Attempt;
use super::call::Record;
use super::group::{self, restore::RestoreWanted};
use super::no_way::NoWay;
use super::outcome::{Outcome, Word, report};
use super::progress::{ProgressLine, Shown, shown};
use super::restore_dry_run::DryRun;
use super::restore_way::{RestoreWay, Wanted, runs};
use crate::answer::exit::Exit;
use crate::answer::{Format, Output, name, show, write_line};
use crate::command_error::CommandError;
use crate::log::past::Past;

/// Restore a container that a checkpoint ended.
///
/// Asks podman, Docker and containerd for the container, and prints the engine's command. Ctrl-C
/// undoes the restore: no restored process is left.
///
/// Exit code 0: the container runs, or with --dry-run nothing is known against a restore; 1: the
/// restore was refused or failed, or would be refused; 2: there is no such container; 130: a signal
/// ended the restore.
#[derive(Debug, Args)]
#[command(override_usage = "stasis restore [OPTIONS] <ID|NAME>\n       \
                      stasis restore [OPTIONS] --bundle <DIRECTORY> <ID>\n       \
                      stasis restore [OPTIONS] --group <DIR> --bundle <NAME=DIRECTORY>...")]
pub struct Arguments {
    /// The container: its id or name, as its engine knows it.
    #[arg(value_name = "ID|NAME", required_unless_present = "group")]
    container: Option<String>,
    /// Restore all containers that `stasis checkpoint --group` saved in this directory, or none.
    /// Each needs its --bundle.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["container", "image", "engine"])]
    group: Option<PathBuf>,
    /// The image. podman: an archive. Docker and ctr: a name. Without an engine: a directory.
    /// Default: the last image of the container.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Ask only this engine. Default: all.
    #[arg(long, value_enum)]
    engine: Option<Known>,
    /// Restore without an engine, in this bundle; with --group: NAME=DIRECTORY for each container.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "engine")]
    bundle: Vec<PathBuf>,
    /// The root of its low-level runtime, with --bundle.
    #[arg(long, value_name = "DIRECTORY", requires = "bundle")]
    root: Option<PathBuf>,
    /// Restore TCP connections, of an image made with this option. Only for podman and with
    /// --bundle; for others write it into /etc/criu/runc.conf.
    #[arg(long, conflicts_with = "group")]
    tcp_established: bool,
    /// Change nothing. Show whether the restore would begin. This reads no GPU contents.
    #[arg(long)]
    dry_run: bool,
    /// When to show progress.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Shown::Auto)]
    progress: Shown,
    #[command(flatten)]
    output: Output,
}

/// An engine that restores containers by its own command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Known {
    Podman,
    Docker,
    Containerd,
}

impl From<Known> for Engine {
    fn from(known: Known) -> Self {
        match known {
            Known::Podman => Self::Podman,
            Known::Docker => Self::Docker,
            Known::Containerd => Self::Containerd,
        }
    }
}

impl Arguments {
    /// The container, as it was named.
    fn name(&self) -> &str {
        self.container.as_deref().unwrap_or_default()
    }
}

/// Carries the command out and returns the exit code. `config` is the file of the settings, if one
/// was named.
///
/// # Errors
/// The log of operations cannot be read, or the answer not be written; a failed restore is in the
/// outcome.
pub fn run(
    settings: &Settings,
    arguments: &Arguments,
    config: Option<&Path>,
) -> Result<Exit, CommandError> {
    if let Some(from) = &arguments.group {
        return restore_group(settings, arguments, from, config);
    }
    let way = way(settings, arguments, config);
    let found = way.as_ref().ok();
    let engine = found.and_then(|way| way.engine);
    let id = found.and_then(|way| way.id.clone());
    let past = Past::read(&settings.paths.log_dir).map_err(CommandError::Log)?;
    let predicted = id.as_ref().and_then(|id| past.predicted(Verb::Restore, id));
    let mut begun = Outcome::begun(arguments.name(), id, engine);
    if arguments.dry_run {
        let answer = DryRun::of(settings, begun, way, predicted);
        show(&answer, arguments.output.format())?;
        return Ok(answer.exit());
    }
    let outcome = match way {
        Ok(way) => {
            if arguments.output.format() == Format::Text {
                write_line(&name(&way.command))?;
            }
            let shown = shown(arguments.progress, arguments.output.format());
            let line = ProgressLine::new(arguments.name(), shown, predicted.map(|all| all.seconds));
            restore(settings, begun, way, line)
        }
        Err(no_way) => {
            begun.notes.extend_from_slice(no_way.notes());
            begun.refused(no_way.to_string(), no_way.kind())
        }
    };
    let container = name(&arguments.name());
    let success = format!("{container}: restored{}; it runs", outcome.measure());
    Ok(report(
        &outcome,
        Verb::Restore,
        &success,
        arguments.output.format(),
    )?)
}

fn way(
    settings: &Settings,
    arguments: &Arguments,
    config: Option<&Path>,
) -> Result<RestoreWay, NoWay> {
    let name = arguments.name();
    if name.is_empty() || name.starts_with('-') {
        let text = format!("{name:?} is neither an id nor a name of a container");
        return Err(NoWay::NoContainer(text));
    }
    let connections = arguments.tcp_established;
    let options = connections.then_some(CriuOption::TcpEstablished);
    let wanted = Wanted {
        name,
        image: arguments.image.as_deref(),
        options: &options.into_iter().collect(),
        engine: arguments.engine.map(Engine::from),
    };
    if is_up(wanted, arguments.root.as_deref()) {
        return Err(runs(name));
    }
    match arguments.bundle.as_slice() {
        [] => RestoreWay::of(wanted),
        [bundle] => {
            let root = arguments.root.as_deref();
            RestoreWay::of_runtime(settings, wanted, bundle, root, config)
        }
        _ => Err(NoWay::Engine(format!(
            "{name} needs one bundle, and several are named; name one, or use --group"
        ))),
    }
}

fn restore_group(
    settings: &Settings,
    arguments: &Arguments,
    from: &Path,
    config: Option<&Path>,
) -> Result<Exit, CommandError> {
    let wanted = RestoreWanted {
        from,
        bundles: &arguments.bundle,
        root: arguments.root.as_deref(),
        config,
        shown: shown(arguments.progress, arguments.output.format()),
        format: arguments.output.format(),
    };
    match arguments.dry_run {
        true => group::restore::dry_run(settings, &wanted),
        false => group::restore::restore(settings, &wanted),
    }
}

/// Returns whether a container of the engine with this name or whole id exists and runs.
fn is_up(wanted: Wanted<'_>, root: Option<&Path>) -> bool {
    locate(wanted.name, root).is_ok_and(|located| {
        let known = located.known();
        let engine = match known.engine {
            Some(Engine::Nerdctl) => Some(Engine::Containerd),
            other => other,
        };
        let is_of_it = wanted.engine.is_none_or(|only| engine == Some(only));
        let is_called = known.name.as_deref() == Some(wanted.name);
        let is_it = is_called || located.container.id() == wanted.name;
        is_it && is_of_it && !located.container.init().is_gone()
    })
}

fn restore(settings: &Settings, outcome: Outcome, way: RestoreWay, line: ProgressLine) -> Outcome {
    let state_dir = &settings.paths.state_dir;
    let attempt = Attempt {
        settings,
        verb: Verb::Restore,
        id: way.id.as_deref(),
        record: Record::Somewhere {
            state_dir,
            id: way.id.as_deref(),
        },
    };
    // An operation that was not begun has made no container.
    let mut outcome = attempt.make(&way.command, outcome, line, || State::Unharmed);
    if outcome.result == Word::Done {
        outcome.image = way.image;
    }
    outcome
}
