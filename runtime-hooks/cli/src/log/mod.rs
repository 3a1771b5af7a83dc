//! `stasis log`: the operations on this machine, from `operations.log`.

pub mod line;
mod names;
pub(crate) mod past;
pub(crate) mod since;
mod table;
mod timeline;

use clap::Args;
use stasis_config::Settings;
use stasis_locate::locate;

use crate::answer::exit::Exit;
use crate::answer::{Format, Output, answer_all, show_note, write_line};
use crate::command_error::CommandError;
use line::{Line, read};
use names::Named;
use since::Since;

/// Show the operations on this machine and their outcomes.
///
/// Shows time, container, duration, outcome, caller and image of each.
///
/// Exit code 0: the operations are shown, or there are none; 2: the log cannot be read, or there is
/// no such container.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only operations on this container: its id, the beginning of its id, or its name.
    #[arg(long, value_name = "ID|NAME")]
    container: Option<String>,
    /// Only operations since 30s, 20min, 2h, 7d ago, or since a time such as 2026-11-25T10:30:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only operations that failed or were refused, with their errors.
    #[arg(long)]
    failed: bool,
    /// Only the last NUMBER operations.
    #[arg(short = 'n', long, value_name = "NUMBER")]
    lines: Option<usize>,
    /// Draw the phases of each operation as bars.
    #[arg(long, conflicts_with = "json")]
    timeline: bool,
    #[command(flatten)]
    output: Output,
}

/// Carries the command out and returns the exit code.
///
/// # Errors
/// The log cannot be read.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let mut lines = matching(settings, arguments)?;
    if let Some(most) = arguments.lines {
        lines.drain(..lines.len().saturating_sub(most));
    }
    let lines = Named::all(lines);
    if arguments.output.format() == Format::Json {
        answer_all("operations", &lines)?;
    } else if lines.is_empty() {
        show_note("no operation in the log matches");
    } else if arguments.timeline {
        write_line(&timeline::of(&lines))?;
    } else {
        write_line(&table::of(&lines))?;
    }
    Ok(Exit::Done)
}

fn matching(settings: &Settings, arguments: &Arguments) -> Result<Vec<Line>, CommandError> {
    let since = arguments.since.map(|Since(time)| time);
    let mut all = Vec::new();
    read(&settings.paths.log_dir, |line| all.push(line)).map_err(CommandError::Log)?;
    let id = arguments.container.as_ref();
    let id = id.map(|name| meant(name, &all)).transpose()?;
    all.retain(|line| {
        let is_of_it = id.as_ref().is_none_or(|id| line.container.starts_with(id));
        let is_late = since.is_none_or(|since| line.began() >= Some(since));
        let is_asked_for = !arguments.failed || line.has_failed();
        is_of_it && is_late && is_asked_for
    });
    Ok(all)
}

/// Returns the id, or the beginning of the id, of the container that a name stands for.
fn meant(name: &str, all: &[Line]) -> Result<String, CommandError> {
    let error = match locate(name, None) {
        Ok(found) => return Ok(found.container.id().to_owned()),
        Err(error) => error,
    };
    if !name.is_empty() && all.iter().any(|line| line.container.starts_with(name)) {
        return Ok(name.to_owned());
    }
    // It has ended, and its engine still knows its name.
    let named = Named::all(all.to_vec()).into_iter();
    let mut named = named.filter(|named| named.name.as_deref() == Some(name));
    match named.next() {
        Some(named) => Ok(named.line.container),
        None => Err(error.into()),
    }
}
