//! `stasis inspect`: what is in images: whose they are, their processes with what they had open,
//! their mounts, and what their checkpoints took. Changes nothing, and decides nothing.

mod elsewhere;
mod process;
mod report;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stasis_config::Settings;

use super::moved::login::Login;
use super::named::reference;
use crate::cli::answer::{Format, Output, answer};
use crate::cli::command_error::{CommandError, MoveError};
use elsewhere::Elsewhere;
use report::Report;

/// Show what is in images.
///
/// Whose they are, which GPUs and how much memory they hold, and on request their processes, open
/// files, sockets and mounts, and what their checkpoints took. Whether an image is whole is not
/// looked at: `stasis verify` does that.
///
/// Exit code 0: they are shown; 2: one of them cannot be.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Image directories; also one into which an engine's archive was unpacked. Or an image in a
    /// registry or an OCI layout, of which two small documents are fetched:
    /// REGISTRY/REPOSITORY:TAG, oci:/DIRECTORY:TAG, or @DIGEST in the place of :TAG.
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
    login: Login,
    #[command(flatten)]
    output: Output,
}

/// An image that is shown.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Shown {
    Here(Box<Report>),
    Elsewhere(Box<Elsewhere>),
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
    let mut shown = Vec::new();
    for image in &arguments.images {
        shown.push(show(settings, image, arguments.login.file())?);
    }
    match arguments.format() {
        Format::Json => answer(&shown)?,
        Format::Text => println!("{}", text::of(&shown, arguments)),
    }
    Ok(0)
}

fn show(settings: &Settings, named: &Path, authfile: Option<&Path>) -> Result<Shown, CommandError> {
    Ok(match reference(named) {
        None => Shown::Here(Box::new(Report::of(settings, named)?)),
        Some(reference) => {
            let reference = reference.map_err(MoveError::from)?;
            Shown::Elsewhere(Box::new(Elsewhere::read(&reference, authfile)?))
        }
    })
}
