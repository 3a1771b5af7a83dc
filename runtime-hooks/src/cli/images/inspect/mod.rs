//! `stasis inspect`: what images say of themselves in our own files: whose they are, their GPUs and
//! processes with GPU state, and what their checkpoints took. Changes nothing, and decides nothing.

mod elsewhere;
mod report;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stasis_config::Settings;

use super::moved::login::Login;
use super::named::reference;
use crate::cli::answer::{Format, Output, answer, write_line};
use crate::cli::command_error::{CommandError, MoveError};
use elsewhere::Elsewhere;
use report::Report;

/// Show what images say of themselves.
///
/// Whose they are, which GPUs and how much memory they hold, where they came from, and on request
/// more. CRIU's own files, with processes, open files, sockets and mounts, are read by `crit` and
/// `checkpointctl`. Whether an image is whole is not looked at: `stasis verify` does that.
///
/// Exit code 0: they are shown; 2: one of them cannot be.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Image directories; also one into which an engine's archive was unpacked. Or an image in a
    /// registry or an OCI layout, of which two small documents are fetched:
    /// REGISTRY/REPOSITORY:TAG, oci:/DIRECTORY:TAG, or @DIGEST in the place of :TAG.
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    /// Show the processes with GPU state, the phases of the checkpoint, and the files with their
    /// checksums, too.
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

/// Carries the command out; its exit code.
///
/// # Errors
/// An image cannot be shown.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<u8, CommandError> {
    let mut shown = Vec::new();
    for image in &arguments.images {
        shown.push(show(settings, image, arguments.login.file())?);
    }
    match arguments.output.format() {
        Format::Json => answer(&shown)?,
        Format::Text => write_line(&text::of(&shown, arguments.all))?,
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
