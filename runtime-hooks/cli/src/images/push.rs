//! `stasis push`: puts an image into a registry or an OCI layout.

use std::path::PathBuf;

use clap::Args;
use stasis_config::Settings;
use stasis_oci_image::Reference;
use stasis_transfer::PushRequest;

use super::login::Login;
use super::moved::Report;
use super::progress::ProgressLine;
use crate::answer::exit::Exit;
use crate::answer::{Output, show};
use crate::command_error::CommandError;

/// Put an image into a registry or an OCI layout.
///
/// Moves only what is missing there. Verifies the image as a restore does, and does not change it.
/// Uses the credentials of podman and Docker.
///
/// Exit code 0: the image is there; 2: it is not, and earlier contents are unchanged.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The destination: REGISTRY/REPOSITORY:TAG, or oci:/DIRECTORY:TAG, which a push creates.
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The image's directory, or an engine's archive.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The container image of the checkpoint: its tag or digest in the same repository. Default:
    /// the one that the engine names, if it is there.
    #[arg(long, value_name = "TAG|DIGEST")]
    subject: Option<String>,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    output: Output,
}

/// Carries the command out and returns the exit code.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let request = PushRequest {
        reference: &arguments.reference,
        image: &arguments.image,
        subject: arguments.subject.as_deref(),
        authfile: arguments.login.authfile.as_deref(),
    };
    let progress = ProgressLine::new(&arguments.reference.to_string());
    let pushed = request.push(settings, &progress)?;
    drop(progress);
    show(&Report(pushed), arguments.output.format())?;
    Ok(Exit::Done)
}
