//! `stasis ps`: the containers of all engines that use a GPU, with blockers and expected cost of a
//! checkpoint. Changes nothing.

mod looks;
pub(crate) mod row;
pub(crate) mod state;
mod table;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use clap::Args;
use stasis_config::Settings;
use stasis_locate::{Located, locate, running};

use crate::answer::exit::Exit;
use crate::answer::{Format, Output, answer_all, show_note, write_line};
use crate::command_error::CommandError;
use crate::log::past::Past;
use looks::Looks;
use row::Row;

/// Show the containers that use a GPU, of all engines.
///
/// Shows GPUs and memory, state, blockers of a checkpoint, the age of the last image, and the
/// expected time of the next checkpoint and restore. `stasis check` explains blockers.
///
/// Exit code 0: the containers are shown, or there are none; 1: a named container uses no GPU; 2:
/// there is no such container, or containers cannot be read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only these containers: ids, beginnings of ids, or names.
    #[arg(value_name = "ID|NAME")]
    containers: Vec<String>,
    /// Show the containers again every 2 seconds, or every SECONDS, until Ctrl-C.
    #[arg(
        short,
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u32).range(1..=3600),
        conflicts_with = "json"
    )]
    watch: Option<u32>,
    #[command(flatten)]
    output: Output,
}

/// Clears a terminal from its first line on (ECMA-48: CUP, ED).
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// Carries the command out and returns the exit code.
///
/// # Errors
/// A named container does not exist, or the log of operations cannot be read.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let looks = Looks::new(settings);
    loop {
        let rows = list(settings, &looks, &arguments.containers)?;
        match arguments.output.format() {
            Format::Json => answer_all("containers", &rows)?,
            Format::Text if rows.is_empty() && arguments.watch.is_none() => {
                show_note(match arguments.containers.as_slice() {
                    [] => "no container uses a GPU",
                    _ => "the named containers use no GPU",
                });
            }
            Format::Text => show(&rows, arguments.watch)?,
        }
        let Some(seconds) = arguments.watch else {
            return Ok(match rows.len() < arguments.containers.len() {
                true => Exit::Refused,
                false => Exit::Done,
            });
        };
        thread::sleep(Duration::from_secs(seconds.into()));
    }
}

/// Returns all containers with GPU state. An unreadable log counts as empty.
pub(crate) fn all(settings: &Settings) -> Vec<Row> {
    let past = Past::read(&settings.paths.log_dir).unwrap_or_default();
    Looks::new(settings).at(running(None), past)
}

/// Returns the containers with GPU state, or the named ones of them.
fn list(settings: &Settings, looks: &Looks, names: &[String]) -> Result<Vec<Row>, CommandError> {
    let found: Vec<Located> = if names.is_empty() {
        running(None)
    } else {
        let named: Result<_, _> = names.iter().map(|name| locate(name, None)).collect();
        named.map_err(CommandError::Locate)?
    };
    let past = Past::read(&settings.paths.log_dir).map_err(CommandError::Log)?;
    Ok(looks.at(found, past))
}

fn show(rows: &[Row], watch: Option<u32>) -> io::Result<()> {
    let clear = watch.is_some() && io::stdout().is_terminal();
    let clear = if clear { CLEAR } else { "" };
    write_line(&format!("{clear}{}", table::of(rows)))
}
