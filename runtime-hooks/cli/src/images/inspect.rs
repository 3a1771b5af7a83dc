//! `stasis inspect`: shows our own files of images: whose they are, their GPUs and processes with
//! GPU state. Changes nothing, and decides nothing.

mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stasis_config::Settings;
use stasis_engine::image::directory::{current, has_inventory, is_ours};
use stasis_engine::image::manifest::Manifest;
use stasis_group::file::{self, GroupMember};
use stasis_locate::engine::Engine;
use stasis_locate::whose::Whose;
use stasis_memory_store::Index;
use stasis_oci_image::document::annotations::Annotations;
use stasis_oci_image::{Kind, Reference};
use stasis_transfer::{Documents, MoveError, Origin};

use super::login::Login;
use super::named::Named;
use super::{bytes_in, reference};
use crate::answer::exit::Exit;
use crate::answer::{Format, Output, answer_all, write_line};
use crate::command_error::{CommandError, ImageError};

/// Show what images hold: container, GPUs, driver, sizes, origin.
///
/// `crit` and `checkpointctl` read CRIU's own files: processes, open files, sockets and mounts.
/// This verifies nothing: `stasis verify` does.
///
/// Exit code 0: the images are shown; 2: one cannot be read.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Image directories, engines' archives (unpacked beside themselves meanwhile), or containers
    /// (their last image). Or images in registries and OCI layouts, of which two small documents
    /// are fetched: REGISTRY/REPOSITORY:TAG, oci:/DIRECTORY:TAG, or @DIGEST instead of :TAG.
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    /// Also show processes with GPU state, phases before the dump, and files with checksums.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    login: Login,
    #[command(flatten)]
    output: Output,
}

/// An image, as its own files describe it.
#[derive(Debug, Serialize)]
struct ImageDescription {
    /// Its directory, or its reference elsewhere.
    image: PathBuf,
    container: Option<String>,
    name: Option<String>,
    engine: Option<Engine>,
    /// The container's own image.
    container_image: Option<String>,
    manifest: Option<Manifest>,
    /// Bytes that the processes held on GPUs.
    gpu_bytes: u64,
    /// Stored bytes of GPU contents, in the image or apart from it.
    bulk_bytes: Option<u64>,
    /// Bytes of all files in its directory, or of all of it elsewhere.
    bytes: u64,
    /// The containers that were checkpointed together with this one, and this one.
    group: Option<Vec<String>>,
    origin: Option<Origin>,
    #[serde(flatten)]
    elsewhere: Option<Elsewhere>,
}

/// Further facts of an image elsewhere.
#[derive(Debug, Serialize)]
struct Elsewhere {
    /// The digest of its manifest there.
    digest: String,
    /// The manifest's annotations.
    annotations: Annotations,
    /// The number of blobs with its GPU contents.
    blobs: usize,
    /// Whether it can be pulled into an engine's archive.
    archive: bool,
    /// The container image of which it is a checkpoint.
    subject: Option<String>,
}

/// Carries the command out and returns the exit code.
///
/// # Errors
/// An image cannot be shown.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let mut reports = Vec::new();
    for named in &arguments.images {
        reports.push(match reference(named) {
            None => ImageDescription::here(settings, named)?,
            Some(reference) => {
                ImageDescription::elsewhere(&reference?, arguments.login.authfile.as_deref())?
            }
        });
    }
    match arguments.output.format() {
        Format::Json => answer_all("images", &reports)?,
        Format::Text => {
            let text = |report: &ImageDescription| match arguments.all {
                true => report.summary() + &report.details(),
                false => report.summary(),
            };
            write_line(&reports.iter().map(text).collect::<Vec<_>>().join("\n\n"))?;
        }
    }
    Ok(Exit::Done)
}

impl ImageDescription {
    fn here(settings: &Settings, named: &Path) -> Result<Self, CommandError> {
        let named = Named::find(settings, named)?;
        let image = directory_of(&named.directory)?;
        let manifest = Manifest::read(&image)?;
        let index = Index::read(&image)?;
        let container = manifest
            .as_ref()
            .map(|manifest| manifest.container.as_str());
        let whose = Whose::of(&image, container);
        Ok(Self {
            container: whose.id,
            name: whose.known.name,
            engine: whose.known.engine,
            container_image: whose.container_image,
            gpu_bytes: manifest.as_ref().map_or(0, Manifest::gpu_bytes),
            manifest,
            bulk_bytes: index.as_ref().map(Index::stored_bytes),
            bytes: bytes_in(&image),
            group: group_of(&image),
            origin: Origin::of(&image),
            image: named.archive.unwrap_or(image),
            elsewhere: None,
        })
    }

    /// Reads two small documents.
    fn elsewhere(reference: &Reference, authfile: Option<&Path>) -> Result<Self, MoveError> {
        let found = Documents::fetch(reference, authfile)?;
        let (document, manifest) = (found.manifest, found.image);
        let memory = || document.layers(Kind::Memory).map(|blob| blob.size);
        Ok(Self {
            image: reference.to_string().into(),
            container: Some(manifest.container.clone()),
            name: None,
            engine: None,
            container_image: None,
            gpu_bytes: manifest.gpu_bytes(),
            manifest: Some(manifest),
            bulk_bytes: Some(memory().fold(0, u64::saturating_add)),
            bytes: document.bytes(),
            group: None,
            origin: None,
            elsewhere: Some(Elsewhere {
                digest: found.digest.to_string(),
                annotations: document.annotations().clone(),
                blobs: memory().count(),
                archive: document.layer(Kind::Engine).is_some(),
                subject: document.subject().map(|subject| subject.digest.to_string()),
            }),
        })
    }
}

/// Returns the names of the containers of a complete group that an image is of.
fn group_of(image: &Path) -> Option<Vec<String>> {
    let group = file::find(image.parent()?).ok()??;
    let directory = image.file_name()?.to_str()?;
    let members = || group.containers.iter();
    members().find(|member| member.image == directory)?;
    let name = |member: &GroupMember| member.name.as_ref().unwrap_or(&member.id).clone();
    Some(members().map(name).collect())
}

/// Returns the image's directory: the named one, or the one that an engine has put into it.
fn directory_of(named: &Path) -> Result<PathBuf, ImageError> {
    let is_image = |directory: &Path| has_inventory(directory) || is_ours(directory);
    let within = named.join("checkpoint");
    let image = if !is_image(named) && is_image(&within) {
        within
    } else {
        named.to_owned()
    };
    let image = current(&image);
    match is_image(&image) {
        true => Ok(image),
        false => Err(ImageError::NoImage(image)),
    }
}
