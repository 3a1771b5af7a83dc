//! The operator's program: shows containers and images and acts on them; under the name
//! `cuda-checkpoint` it replaces NVIDIA's program of that name.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use stasis::answer::exit::Exit;
use stasis::answer::{Format, Output, answer_failure, show, show_error};
use stasis::check::{CheckError, check_by_engine};
use stasis::command_error::{CommandError, refuse_others};
use stasis::cuda_checkpoint;
use stasis::doctor::{doctor, self_test};
use stasis::images::{self, gc, inspect, pull, push};
use stasis::recover::{self, Which};
use stasis::setup::{self, setup};
use stasis::suspend::{self, Goal};
use stasis::through_engine::{checkpoint, restore};
use stasis::version::Version;
use stasis::{documents, log, metrics, ps, usage};
use stasis_config::Settings;
use stasis_engine::error::chain;
use stasis_engine::workers;
use stasis_gpu::cuda::watchdog;
use stasis_host::capabilities::Work;
use stasis_linux::open_files;
use stasis_locate::locate;
use stasis_transfer::workers as transfers;

/// Checkpoint and restore running GPU containers.
///
/// Works with containers of podman, Docker, containerd and Kubernetes, and of runc and crun called
/// by hand. Needs root.
///
/// Begin with `stasis doctor`. `man stasis-COMMAND` is the manual of a command.
#[derive(Debug, Parser)]
#[command(name = "stasis", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Read the settings from this file instead of /etc/stasis/stasis.toml.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// The verbs, in the order of the help.
#[derive(Debug, Subcommand)]
enum Verb {
    Ps(ps::Arguments),
    /// Show whether a container can be checkpointed, and why not.
    ///
    /// Exit code 0: a checkpoint would begin; 1: it would be refused; 2: there is no such
    /// container, or it cannot be read.
    Check {
        /// The container: its id, the beginning of its id, or its name.
        #[arg(value_name = "ID|NAME")]
        id: String,
        /// The root of its low-level runtime. Default: all usual roots.
        #[arg(long, value_name = "DIRECTORY")]
        root: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
    Checkpoint(checkpoint::Arguments),
    Restore(restore::Arguments),
    /// Free the GPUs of containers in place: contents move to host memory.
    ///
    /// The processes run until they call CUDA, and wait there. Ctrl-C undoes all.
    ///
    /// Exit code 0: all are suspended; 1: some are not, and are unchanged unless reported
    /// otherwise; 2: there is no such container.
    Suspend(suspend::Arguments),
    /// Give suspended containers their GPUs back.
    ///
    /// A container without room on its GPUs is refused, or waits with --wait. Ctrl-C undoes all.
    ///
    /// Exit code 0: all run; 1: some do not, and are unchanged unless reported otherwise; 2: there
    /// is no such container.
    Resume(suspend::Arguments),
    /// List images, and whether this machine can restore them.
    ///
    /// This reads no GPU contents: `stasis verify` does.
    ///
    /// Exit code 0: the images are listed; 2: they cannot be.
    Images(images::Arguments),
    Inspect(inspect::Arguments),
    /// Read images in full and compare checksums.
    ///
    /// An image is "unknown" if nothing lists its files: it has no stasis.json, or one without
    /// them.
    ///
    /// Exit code 0: all images are whole, and with --here this machine can restore them; 1: some
    /// are damaged or unknown, or this machine cannot restore them; 2: an image in a registry or an
    /// OCI layout cannot be read.
    Verify(images::VerifyArguments),
    Push(push::Arguments),
    Pull(pull::Arguments),
    Gc(gc::Arguments),
    /// Check this machine, and show remedies for faults.
    ///
    /// Checks GPUs, driver, CRIU, runtimes, engines, room and rights.
    ///
    /// Each finding has an id, a verdict (fault, warning, ok), the evidence and the remedy. The
    /// first run tries this build of the driver: this takes some seconds and 1 GiB of GPU memory.
    ///
    /// Exit code 0: there is no fault; 1: there is one; 2: you are not root.
    Doctor {
        /// Only try this build of the driver, unless it was tried before.
        #[arg(long)]
        self_test: bool,
        #[command(flatten)]
        output: Output,
    },
    Setup(setup::Arguments),
    /// Undo operations that were killed together with their keepers.
    ///
    /// The keeper of an operation is a process that undoes the operation if it is killed. This
    /// command undoes operations whose keeper was killed, too. It does not touch operations that
    /// run. It continues interrupted copies and pushes.
    ///
    /// Exit code 0: nothing is left to undo; 1: something is; 2: there is no such container, or a
    /// record cannot be read.
    Recover {
        /// The container: its id, the beginning of its id, or its name. Default: all containers.
        #[arg(value_name = "ID|NAME")]
        id: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    Log(log::Arguments),
    Metrics(metrics::Arguments),
    /// Show the version of stasis.
    ///
    /// Exit code 0: always.
    Version {
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

impl Verb {
    /// Whether the verb is [`Work::Images`].
    fn only_moves_or_reads_images(&self) -> bool {
        match self {
            Self::Push(_) | Self::Inspect(_) => true,
            // In the background another process pulls, and this one judges the machine. Otherwise
            // an image is pulled whatever its verdict.
            Self::Pull(pull) => !pull.background,
            Self::Verify(verify) => !verify.here,
            _ => false,
        }
    }
}

fn main() -> ExitCode {
    open_files::raise_limit();
    let called = env::args_os().next().unwrap_or_default();
    let code = if let Some(code) = workers::run().or_else(transfers::run) {
        code
    } else if Path::new(&called).file_name() == Some(cuda_checkpoint::NAME.as_ref()) {
        cuda_checkpoint::main(env::args_os())
    } else {
        carry_out(&env::args_os().collect::<Vec<_>>()).code()
    };
    watchdog::exit_despite_hung_calls(code);
    ExitCode::from(code)
}

/// Carries a command line out.
fn carry_out(words: &[OsString]) -> Exit {
    let command = documents::with_examples(usage::grouped(Arguments::command()));
    let parsed = command.clone().try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| {
        let format = format_of(&matches);
        Ok((Arguments::from_arg_matches(&matches)?, format))
    });
    match parsed {
        Err(error) => usage::report(error, &command, words),
        Ok((arguments, format)) => run(arguments).unwrap_or_else(|error| {
            report_error(&error, format);
            Exit::Unable
        }),
    }
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

fn run(arguments: Arguments) -> Result<Exit, CommandError> {
    let Arguments { verb, config } = arguments;
    let config = config.as_deref();
    let settings = || Settings::load(config);
    if !matches!(verb, Verb::Documents { .. } | Verb::Version { .. }) {
        refuse_others()?;
    }
    if verb.only_moves_or_reads_images() {
        Work::Images.give_up_others()?;
    }
    match verb {
        Verb::Check { id, root, output } => {
            let located = locate(&id, root.as_deref()).map_err(CheckError::from)?;
            let report = check_by_engine(&settings()?, &located, &BTreeSet::new())?;
            show(&report, output.format())?;
            Ok(Exit::of(report.checkpointable))
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
                false => doctor(settings(), config),
            };
            show(&found, output.format())?;
            Ok(Exit::of(found.is_sound()))
        }
        Verb::Setup(arguments) => {
            show(&setup(&arguments)?, arguments.output.format())?;
            Ok(Exit::Done)
        }
        Verb::Version { output } => {
            show(&Version::own(), output.format())?;
            Ok(Exit::Done)
        }
        Verb::Documents { share } => {
            let commands = [Arguments::command(), cuda_checkpoint::command_line()];
            documents::write(commands, &share)?;
            Ok(Exit::Done)
        }
    }
}

/// Reports an error on standard error, and with `--json` also on standard output for programs.
fn report_error(error: &CommandError, format: Format) {
    let (text, diagnosis) = (chain(error), error.diagnosis());
    show_error(&format!("{text} [{}]", diagnosis.kind));
    if format == Format::Json {
        // No channel is left to report that this write failed.
        let _ = answer_failure(&text, diagnosis);
    }
}

#[cfg(test)]
mod tests;
