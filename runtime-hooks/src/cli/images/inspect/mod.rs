//! `stasis inspect`: what is in images: whose they are, their processes with what they had open,
//! their mounts, and what their checkpoints took. Changes nothing, and decides nothing.

mod process;
mod report;
mod text;

use std::path::PathBuf;

use clap::Args;
use stasis_config::Settings;

use crate::cli::answer::{Format, Output, answer};
use crate::cli::command_error::CommandError;
use report::Report;

/// Show what is in images.
///
/// Whose they are, which GPUs and how much memory they hold, and on request their processes, open
/// files, sockets and mounts, and what their checkpoints took. Whether they are whole is not looked
/// at: `stasis verify` does.
///
/// Exit code 0: they are shown; 2: one of them cannot be.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Image directories; also the directory that an engine has put one into, beside its
    /// config.dump.
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    /// Show the processes as a tree, with the command lines that are in the image.
    #[arg(long)]
    ps_tree: bool,
    /// Show what they have open.
    #[arg(long)]
    files: bool,
    /// Show their sockets.
    #[arg(long)]
    sockets: bool,
    /// Show the mounts.
    #[arg(long)]
    mounts: bool,
    /// Show how long each phase of the checkpoint took, and what CRIU measured.
    #[arg(long)]
    stats: bool,
    /// Show all of that.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
}

impl Arguments {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        self.output.format()
    }
}

/// Carries the command out; its exit code.
///
/// # Errors
/// An image cannot be shown.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<u8, CommandError> {
    let mut reports = Vec::new();
    for image in &arguments.images {
        reports.push(Report::of(settings, image)?);
    }
    match arguments.format() {
        Format::Json => answer(&reports)?,
        Format::Text => println!("{}", text::of(&reports, arguments)),
    }
    Ok(0)
}
