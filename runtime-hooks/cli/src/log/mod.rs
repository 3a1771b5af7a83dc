//! `stasis log`: the operations on this machine, from `operations.log`.

pub mod line;
pub(crate) mod past;
pub(crate) mod since;
mod table;
mod timeline;

use std::time::SystemTime;

use clap::Args;
use stasis_config::Settings;

use crate::answer::{Format, Output, answer, show_note, write_line};
use crate::command_error::CommandError;
use crate::locate::locate;
use line::{Line, read};
use since::Since;

/// Show the operations on this machine, and how they went.
///
/// When, on which container, how long they took, what has become of them, and who asked for them.
///
/// Exit code 0: they are shown, if there are any; 2: the log cannot be read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only those on the container of this id (or the beginning of it) or name.
    #[arg(long, value_name = "ID|NAME")]
    container: Option<String>,
    /// Only those that began since: 30s, 20min, 2h, 7d ago, or a time such as 2026-11-25T10:30:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Only those that failed or were refused, with their errors.
    #[arg(long)]
    failed: bool,
    /// Only the last of them, so many.
    #[arg(short = 'n', long, value_name = "NUMBER")]
    lines: Option<usize>,
    /// Show the phases of each as bars.
    #[arg(long, conflicts_with = "json")]
    timeline: bool,
    #[command(flatten)]
    output: Output,
}

/// Carries the command out and returns the exit code.
///
/// # Errors
/// The log cannot be read.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<u8, CommandError> {
    let mut lines = matching(settings, arguments).map_err(CommandError::Log)?;
    if let Some(most) = arguments.lines {
        lines.drain(..lines.len().saturating_sub(most));
    }
    if arguments.output.format() == Format::Json {
        answer(&lines)?;
    } else if lines.is_empty() {
        show_note("no operation is logged that matches");
    } else if arguments.timeline {
        write_line(&timeline::of(&lines))?;
    } else {
        write_line(&table::of(&lines))?;
    }
    Ok(0)
}

fn matching(settings: &Settings, arguments: &Arguments) -> std::io::Result<Vec<Line>> {
    let now = SystemTime::now();
    let since = arguments.since.as_ref().map(|since| since.before(now));
    // The name is known of a container that runs.
    let id = arguments.container.as_ref().map(|name| {
        let located = locate(name, None).ok();
        located.map_or_else(|| name.clone(), |found| found.container.id().to_owned())
    });
    let mut lines = Vec::new();
    read(&settings.paths.log_dir, |line| {
        let is_of_it = id.as_ref().is_none_or(|id| line.container.starts_with(id));
        let is_late = since.is_none_or(|since| line.began() >= Some(since));
        let is_asked_for = !arguments.failed || line.has_failed();
        if is_of_it && is_late && is_asked_for {
            lines.push(line);
        }
    })?;
    Ok(lines)
}
