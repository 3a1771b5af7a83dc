//! The operator's program: shows containers and images and acts on them; under the name
//! `cuda-checkpoint` it replaces NVIDIA's program of that name.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use stasis::answer::{Format, Output, answer, show, show_error};
use stasis::check::{CheckError, check_by_engine};
use stasis::command_error::{CommandError, refuse_others};
use stasis::cuda_checkpoint;
use stasis::doctor::{doctor, self_test};
use stasis::images::transfer::workers as transfers;
use stasis::images::transfer::{pull::command as pull, push};
use stasis::images::{self, gc, inspect};
use stasis::locate::locate;
use stasis::recover::{self, Which};
use stasis::setup::{self, setup};
use stasis::suspend::{self, Goal};
use stasis::through_engine::{checkpoint, restore};
use stasis::{documents, gone, log, metrics, ps};
use stasis_config::Settings;
use stasis_engine::error::chain;
use stasis_engine::workers;
use stasis_gpu::cuda::watchdog;
use stasis_linux::open_files;

/// Checkpoint and restore running GPU containers.
///
/// Works with containers of podman, Docker, containerd, Kubernetes, or of a low-level runtime
/// called by hand. Also shows what runs and what a checkpoint of it would take, what was done,
/// which images there are, and what is wrong with this node. Only root can use it.
///
/// `stasis doctor` is a good first command, and `man stasis-COMMAND` the manual of each.
#[derive(Debug, Parser)]
#[command(name = "stasis", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// The settings, in place of /etc/stasis/stasis.toml.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say what this machine can do, what is wrong with it, and what to do.
    ///
    /// Each finding has an id, a verdict (fault, warning, ok), the evidence and the remedy. This
    /// build of the driver is tried, if it was not yet: some seconds, and 1 GiB of a GPU's memory.
    ///
    /// Exit code 0: nothing is at fault, though there may be warnings; 1: something is.
    Doctor {
        /// Try this build of the driver, if it was not yet, and look at nothing else.
        #[arg(long)]
        self_test: bool,
        #[command(flatten)]
        output: Output,
    },
    Setup(setup::Arguments),
    /// Say whether a container could be checkpointed, and why not.
    ///
    /// Exit code 0: it would begin; 1: it would be refused; 2: that cannot be told.
    Check {
        /// The container's id (or the beginning of it) or name.
        #[arg(value_name = "ID|NAME")]
        id: String,
        /// The root of its low-level runtime; without it the usual roots are searched.
        #[arg(long, value_name = "DIRECTORY")]
        root: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    Ps(ps::Arguments),
    Log(log::Arguments),
    Checkpoint(checkpoint::Arguments),
    Restore(restore::Arguments),
    Metrics(metrics::Arguments),
    /// Free the GPUs of containers in place: their GPU contents wait in host memory.
    ///
    /// Their processes go on until they call CUDA, and wait there. Ctrl-C undoes all.
    ///
    /// Exit code 0: all are suspended; 1: some are not, and are unchanged unless reported
    /// otherwise.
    Suspend(suspend::Arguments),
    /// Give suspended containers their GPUs back.
    ///
    /// One for which there is no room is refused, or waits with --wait. Ctrl-C undoes all.
    ///
    /// Exit code 0: all run; 1: some do not, and are unchanged unless reported otherwise.
    Resume(suspend::Arguments),
    /// List images: whose they are, how big, and whether they can be restored here.
    ///
    /// Their contents are not read: `stasis verify` does that.
    ///
    /// Exit code 0: they are listed; 2: they cannot be.
    Images(images::Arguments),
    /// Read images in full and compare checksums; with --here also ask whether they would run here.
    ///
    /// An image that nothing vouches for is "unknown": one without stasis.json, or without a list
    /// of its files.
    ///
    /// Exit code 0: all are whole, and with --here can be restored here; 1: some are not, or that
    /// is unknown.
    Verify(images::VerifyArguments),
    Inspect(inspect::Arguments),
    Push(push::Arguments),
    Pull(pull::Arguments),
    Gc(gc::Arguments),
    /// Undo what killed operations have left to undo.
    ///
    /// Each has a keeper, a process that does so if the operation is killed: this is for a killed
    /// keeper. Operations under way are left alone. Interrupted copies and pushes go on.
    ///
    /// Exit code 0: nothing is left; 1: something is; 2: no such container is known, or what is
    /// recorded cannot be read.
    Recover {
        /// The container's id (or the beginning of it) or name; without it all containers.
        #[arg(value_name = "ID|NAME")]
        id: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Write manual pages and completions of shells below this directory, for a package.
    #[command(hide = true)]
    Documents {
        /// Such as /usr/share.
        share: PathBuf,
    },
}

const REFUSED: u8 = 1;
const NO_ANSWER: u8 = 2;

fn main() -> ExitCode {
    open_files::raise_limit();
    let called = env::args_os().next().unwrap_or_default();
    let code = if let Some(code) = workers::run().or_else(transfers::run) {
        code
    } else if Path::new(&called).file_name() == Some(cuda_checkpoint::NAME.as_ref()) {
        cuda_checkpoint::main(env::args_os())
    } else {
        // A wrong command line ends the process with code 2.
        let matches = documents::with_examples(Arguments::command()).try_get_matches();
        let matches =
            matches.unwrap_or_else(|error| gone::with_successor(error, env::args_os()).exit());
        let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let format = format_of(&matches);
        run(arguments).unwrap_or_else(|error| {
            report_error(&error, format);
            NO_ANSWER
        })
    };
    watchdog::exit_despite_hung_calls(code);
    ExitCode::from(code)
}

/// Returns the format in which the verb is to answer.
fn format_of(mut matches: &ArgMatches) -> Format {
    while let Some((_, of_verb)) = matches.subcommand() {
        matches = of_verb;
    }
    match matches.try_get_one("json") {
        Ok(Some(true)) => Format::Json,
        _ => Format::Text,
    }
}

fn run(arguments: Arguments) -> Result<u8, CommandError> {
    let Arguments { verb, config } = arguments;
    let config = config.as_deref();
    let settings = || Settings::load(config);
    if !matches!(verb, Verb::Documents { .. }) {
        refuse_others()?;
    }
    match verb {
        Verb::Check { id, root, output } => {
            let located = locate(&id, root.as_deref()).map_err(CheckError::from)?;
            let report = check_by_engine(&settings()?, &located, &BTreeSet::new())?;
            show(&report, output.format())?;
            Ok(if report.checkpointable { 0 } else { REFUSED })
        }
        Verb::Recover { id, output } => {
            let which = id.map_or(Which::All, Which::Named);
            recover::run(&settings()?, &which, output.format())
        }
        Verb::Ps(arguments) => ps::run(&settings()?, &arguments),
        Verb::Log(arguments) => log::run(&settings()?, &arguments),
        Verb::Checkpoint(arguments) => checkpoint::run(&settings()?, &arguments, config),
        Verb::Restore(arguments) => restore::run(&settings()?, &arguments, config),
        Verb::Images(arguments) => images::run(&settings()?, &arguments),
        Verb::Metrics(arguments) => metrics::run(&settings()?, &arguments),
        Verb::Verify(arguments) => images::verify(&settings()?, &arguments),
        Verb::Inspect(arguments) => inspect::run(&settings()?, &arguments),
        Verb::Push(arguments) => push::run(&settings()?, &arguments),
        Verb::Pull(arguments) => pull::run(&settings()?, &arguments),
        Verb::Gc(arguments) => gc::run(&settings()?, &arguments),
        Verb::Suspend(containers) => {
            suspend::run(&settings()?, &containers, Goal::Suspended, config)
        }
        Verb::Resume(containers) => suspend::run(&settings()?, &containers, Goal::Running, config),
        Verb::Doctor {
            self_test: alone,
            output,
        } => {
            let found = match alone {
                true => self_test(&settings()?),
                false => doctor(settings()),
            };
            show(&found, output.format())?;
            Ok(if found.is_sound() { 0 } else { REFUSED })
        }
        Verb::Setup(arguments) => {
            show(&setup(&arguments)?, arguments.output.format())?;
            Ok(0)
        }
        Verb::Documents { share } => {
            let commands = [Arguments::command(), cuda_checkpoint::command_line()];
            documents::write(commands, &share)?;
            Ok(0)
        }
    }
}

/// Reports an error on standard error, and with `--json` also on standard output for programs.
fn report_error(error: &CommandError, format: Format) {
    let (text, diagnosis) = (chain(error), error.diagnosis());
    show_error(&format!("{text} [{}]", diagnosis.kind));
    if format == Format::Json {
        let (kind, state) = (diagnosis.kind, diagnosis.state);
        // No channel is left to report that this write failed.
        let _ = answer(&serde_json::json!({ "error": text, "kind": kind, "state": state }));
    }
}

#[cfg(test)]
mod tests;
