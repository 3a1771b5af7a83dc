//! `stasis images` and `stasis verify`: the images that this machine knows of, and whether they
//! are whole and can be restored here. Changes nothing.

pub mod gc;
pub mod inspect;
mod known;
pub mod moved;
pub mod offered;
mod row;
mod table;

use std::path::PathBuf;

use clap::Args;
use stasis_config::Settings;

use crate::cli::answer::{Format, Output, answer};
use crate::cli::check::image::Reading;
use crate::cli::command_error::CommandError;
use row::Row;

/// The images, and what of them is read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Image directories; without any, those that operations.log and stored bulk memory name.
    #[arg(value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

const NOT_ALL: u8 = 1;

impl Arguments {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        self.output.format()
    }
}

/// Shows the images; the exit code.
///
/// # Errors
/// What is stored on this machine cannot be listed.
pub fn run(
    settings: &Settings,
    arguments: &Arguments,
    reading: Reading,
) -> Result<u8, CommandError> {
    let mut directories = arguments.directories.clone();
    if directories.is_empty() {
        directories = known::directories(settings)?;
    }
    let rows: Vec<Row> = directories
        .iter()
        .map(|directory| Row::of(settings, directory, reading))
        .collect();
    match arguments.format() {
        Format::Json => answer(&rows)?,
        Format::Text => println!("{}", table::of(&rows)),
    }
    let is_well = match reading {
        Reading::Everything => rows.iter().all(|row| row.restorable),
        Reading::Records => true,
    };
    Ok(if is_well { 0 } else { NOT_ALL })
}
