//! `stasis suspend` and `stasis resume`: frees the GPUs of containers in place, and gives them
//! back.
//!
//! One process carries out one operation (its keeper, its signals and its watchdog are the
//! process's), so several containers are several processes of this program at the same time.

mod bring;
mod outcome;
mod parallel;

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use stasis_config::Settings;
use stasis_engine::error::chain;
use stasis_engine::error::kind::{Diagnosis, State};
use stasis_host::cancel::Cancel;
use stasis_locate::locate;

use crate::answer::exit::Exit;
use crate::answer::{Format, Output, answer_all, show_error, write_line};
use crate::command_error::CommandError;
use bring::bring;
use outcome::Outcome;

/// The place of a container's GPU contents after the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// In host memory: its GPUs are free.
    Suspended,
    /// On its GPUs.
    Running,
}

impl Goal {
    /// Returns the operation's name in `operations.log`.
    fn verb(self) -> &'static str {
        match self {
            Self::Suspended => "suspend",
            Self::Running => "resume",
        }
    }
}

/// The interval of tries for a container that has to wait.
const AGAIN: Duration = Duration::from_secs(1);

/// The list of the JSON answer.
const CONTAINERS: &str = "containers";

/// The containers, and how long to wait for them.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The containers: ids, beginnings of ids, or names.
    #[arg(value_name = "ID|NAME", required = true)]
    containers: Vec<String>,
    /// Wait while there is no room or another operation works on a container: without a limit, or
    /// for SECONDS.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "4294967295",
        require_equals = true
    )]
    wait: Option<u32>,
    /// The root of their low-level runtime. Default: all usual roots.
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Carries the command out and returns the exit code. `config`: the settings' file, if named.
///
/// # Errors
/// The answer cannot be written, or processes cannot be started; a container's failure is in its
/// outcome.
pub fn run(
    settings: &Settings,
    arguments: &Arguments,
    goal: Goal,
    config: Option<&Path>,
) -> Result<Exit, CommandError> {
    let outcomes = match arguments.containers.as_slice() {
        [name] => vec![bring_one(settings, arguments, name, goal)?],
        _ => parallel::run_each(arguments, goal, config)?,
    };
    match arguments.output.format() {
        Format::Json => answer_all(CONTAINERS, &outcomes)?,
        Format::Text => outcomes.iter().try_for_each(|outcome| say(outcome, goal))?,
    }
    Ok(match outcomes.iter().all(Outcome::is_of_none) {
        true => Exit::Unable,
        false => Exit::of_all(outcomes.iter().map(Outcome::is_success)),
    })
}

fn say(outcome: &Outcome, goal: Goal) -> io::Result<()> {
    match outcome.failure() {
        Some(failure) => show_error(&failure),
        None => write_line(&outcome.text(goal))?,
    }
    Ok(())
}

fn bring_one(
    settings: &Settings,
    arguments: &Arguments,
    name: &str,
    goal: Goal,
) -> io::Result<Outcome> {
    let cancel = Cancel::on_signals()?;
    let wait = Duration::from_secs(arguments.wait.unwrap_or_default().into());
    let start = Instant::now();
    loop {
        let located = match locate(name, arguments.root.as_deref()) {
            Ok(located) => located,
            Err(error) => {
                let diagnosis = Diagnosis::new(error.kind(), State::Unharmed);
                return Ok(Outcome::failed(name, None, chain(&error), diagnosis));
            }
        };
        let outcome = bring(settings, name, located, goal, cancel.clone());
        let is_over = start.elapsed() + AGAIN >= wait || cancel.requested();
        if is_over || !outcome.may_pass() {
            return Ok(outcome);
        }
        thread::sleep(AGAIN);
    }
}
