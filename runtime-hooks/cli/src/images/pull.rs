//! `stasis pull`: fetches an image from a registry or an OCI layout, now or in the background.

use std::path::PathBuf;

use clap::Args;
use stasis_config::Settings;
use stasis_engine::restore::admission::described::Unfit;
use stasis_oci_image::Reference;
use stasis_transfer::{Incoming, begin};

use super::login::Login;
use super::moved::Report;
use crate::answer::exit::Exit;
use crate::answer::{Output, name, show, show_note};
use crate::command_error::CommandError;

/// Fetch an image from a registry or an OCI layout into a directory.
///
/// Verifies the image by its digests, and continues an interrupted pull. Uses the credentials of
/// podman and Docker.
///
/// Exit code 0: the image is there; 2: it is not.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The source: REGISTRY/REPOSITORY:TAG, or oci:/DIRECTORY:TAG; or @DIGEST instead of :TAG.
    #[arg(value_name = "REF")]
    reference: Reference,
    /// A new or empty directory for the image. A name that ends in .tar or .tar.zst becomes an
    /// archive for an engine, of an image that was pushed with its engine's files.
    #[arg(value_name = "INTO")]
    into: PathBuf,
    /// Return as soon as a restore can begin: the rest follows, and the restore waits for the parts
    /// that it needs. Refuses an image that would not run here.
    #[arg(long)]
    pub background: bool,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    output: Output,
}

/// Carries the command out and returns the exit code.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let (reference, into) = (&arguments.reference, &arguments.into);
    let authfile = arguments.login.authfile.as_deref();
    let format = arguments.output.format();
    if arguments.background {
        show(&Report(begin(settings, reference, authfile, into)?), format)?;
        return Ok(Exit::Done);
    }
    let incoming = Incoming::find(reference, authfile)?;
    if let Err(Unfit { kind, why }) = incoming.fits(settings) {
        let (image, why) = (name(reference), name(&why));
        let text = format!("{image} would not run here; it is pulled anyway: {why} [{kind}]");
        show_note(&text);
    }
    show(&Report(incoming.pull(settings, into)?), format)?;
    Ok(Exit::Done)
}
