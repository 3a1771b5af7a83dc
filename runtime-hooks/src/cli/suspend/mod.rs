//! `stasis suspend` and `stasis resume`: frees the GPUs of containers in place, and gives them
//! back.
//!
//! One process carries out one operation (its keeper, its signals and its watchdog are the
//! process's), so several containers are several processes of this program at the same time.

mod each;
mod outcome;

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use stasis_config::Settings;

use crate::cli::answer::{Format, Output, answer, show_error, write_line};
use crate::cli::command_error::CommandError;
use crate::cli::cuda_checkpoint::in_place::{Changed, NotChanged, bring};
use crate::cli::locate::locate;
use outcome::Outcome;

pub use crate::cli::cuda_checkpoint::in_place::Goal;

/// How often a container that has to wait is tried again.
const AGAIN: Duration = Duration::from_secs(1);
const FAILED: u8 = 1;

/// The containers, and how long to wait for them.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Containers, by id (or the beginning of it) or name.
    #[arg(value_name = "ID|NAME", required = true)]
    containers: Vec<String>,
    /// If there is no room, or another operation works on a container, try again until it
    /// succeeds, for SECONDS at most if that is given.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "4294967295",
        require_equals = true
    )]
    wait: Option<u32>,
    /// The root of their low-level runtime; without it the usual roots are searched.
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Carries the command out; its exit code. `config` is the file of the settings, if one was named.
///
/// # Errors
/// The answer cannot be written, or processes cannot be started; what becomes of each container is
/// in its outcome.
pub fn run(
    settings: &Settings,
    arguments: &Arguments,
    goal: Goal,
    config: Option<&Path>,
) -> Result<u8, CommandError> {
    let outcomes = match arguments.containers.as_slice() {
        [name] => vec![bring_one(settings, arguments, name, goal)],
        _ => each::apart(arguments, goal, config)?,
    };
    match arguments.output.format() {
        Format::Json => answer(&outcomes)?,
        Format::Text => outcomes.iter().try_for_each(|outcome| say(outcome, goal))?,
    }
    let all = outcomes.iter().all(Outcome::is_success);
    Ok(if all { 0 } else { FAILED })
}

fn say(outcome: &Outcome, goal: Goal) -> io::Result<()> {
    match outcome.failure() {
        Some(failure) => show_error(&failure),
        None => write_line(&outcome.text(goal))?,
    }
    Ok(())
}

fn bring_one(settings: &Settings, arguments: &Arguments, name: &str, goal: Goal) -> Outcome {
    let wait = Duration::from_secs(arguments.wait.unwrap_or_default().into());
    let start = Instant::now();
    loop {
        let located = match locate(name, arguments.root.as_deref()) {
            Ok(located) => located,
            Err(error) => return Outcome::not_found(name, &error),
        };
        let id = located.container.id().to_owned();
        match bring(settings, located, goal) {
            Err(not_changed) if not_changed.may_pass() && start.elapsed() + AGAIN < wait => {
                thread::sleep(AGAIN);
            }
            result => return Outcome::of(name, id, result),
        }
    }
}

impl Outcome {
    fn of(name: &str, id: String, result: Result<Changed, NotChanged>) -> Self {
        match result {
            Ok(changed) => Self::changed(name, id, changed),
            Err(not_changed) => Self::failed(name, Some(id), not_changed),
        }
    }
}
