//! `stasis pull`: fetches an image from a registry or an OCI layout, now or in the background.

use std::path::{Path, PathBuf};

use clap::Args;
use stasis_config::Settings;
use stasis_engine::restore::admission::described::Unfit;
use stasis_oci_image::Reference;
use stasis_transfer::Open as _;

use super::super::archived::{is_archive, pull_archive};
use super::super::arriving::arrive::{has_arrived_in_part, resume_pull};
use super::super::arriving::background;
use super::super::login::Login;
use super::super::report::place_of;
use super::parts::unfit;
use super::pull;
use crate::answer::exit::Exit;
use crate::answer::{Output, name, show, show_note};
use crate::command_error::{CommandError, MoveError};
use crate::images::origin::Origin;

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
    background: bool,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    output: Output,
}

/// Carries the command out and returns the exit code.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let reference = &arguments.reference;
    let authfile = arguments.login.file();
    if arguments.background {
        let begun = background::begin(settings, reference, authfile, &arguments.into)?;
        show(&begun, arguments.output.format())?;
        return Ok(Exit::Done);
    }
    let from = reference.open(authfile).map_err(MoveError::from)?;
    if let Some(Unfit { kind, why }) = unfit(settings, &*from, reference) {
        let (image, why) = (name(reference), name(&why));
        let text = format!("{image} would not run here; it is pulled anyway: {why} [{kind}]");
        show_note(&text);
    }
    let into = &arguments.into;
    let pull_into = |directory: &Path| pull(settings, &*from, reference, directory);
    let pulled = if is_archive(into) {
        pull_archive(&*from, reference, into, pull_into)?
    } else if has_arrived_in_part(into)? {
        resume_pull(settings, &*from, reference, authfile, into)?
    } else {
        pull_into(into)?
    };
    if pulled.image.is_dir() {
        Origin::note_pulled(&pulled.image, place_of(&pulled));
    }
    show(&pulled, arguments.output.format())?;
    Ok(Exit::Done)
}
