//! `stasis push`: an image to where registries' images are.

use std::path::PathBuf;
use std::thread;

use clap::Args;
use stasis_config::Settings;
use stasis_memory_store::{
    BlobContents, Gathered, INDEX_FILE, Lengths, MOST_CONTENTS_BYTES, decode_contents, gather,
    pack_of,
};
use stasis_oci_image::document::annotations::IMAGE_NAME;
use stasis_oci_image::{
    Descriptor, Digest, Elsewhere, Kind, Manifest, OciImageError, Reference, bundle,
};

use super::login::Login;
use super::outgoing::{Layer, Outgoing};
use super::progress::Progress;
use super::report::{Moved, place_of};
use super::source::{Memory, Source, listed};
use super::{annotations, engine};
use crate::bulk_memory::request::threads;
use crate::cli::answer::{Format, Output, show};
use crate::cli::command_error::{CommandError, MoveError};
use crate::cli::images::origin::Origin;
use crate::image::files::ImageFile;

/// So many images that the other side has are looked at for what need not be moved.
const EARLIER: usize = 16;

/// Put an image into a registry or an OCI layout.
///
/// Only what is not there yet is moved. The image is verified as at a restore, and stays as it is.
/// Credentials are those of podman and Docker.
///
/// Exit code 0: it is there; 2: it is not, and what was there before is.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where to: REGISTRY/REPOSITORY:TAG, or oci:/DIRECTORY:TAG, whose directory is made.
    #[arg(value_name = "REF")]
    reference: Reference,
    /// The image's directory, or the archive into which an engine has exported it.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The tag or digest, in the same repository, of the container image that this is a checkpoint
    /// of. If it is not given, the one that the engine names, if that is there.
    #[arg(long, value_name = "TAG|DIGEST")]
    subject: Option<String>,
    #[command(flatten)]
    login: Login,
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
/// The image is not there.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<u8, CommandError> {
    let Arguments {
        reference, image, ..
    } = arguments;
    let source = Source::open(settings, image)?;
    let place = reference
        .open_or_make(arguments.login.file())
        .map_err(MoveError::from)?;
    let subject = subject(&*place, arguments, &source)?;
    let pushed = push(settings, source, &*place, reference, subject, Lengths::of)?;
    if image.is_dir() {
        Origin::note_pushed(image, place_of(&pushed));
    }
    show(&pushed, arguments.format())?;
    Ok(0)
}

pub(super) fn push(
    settings: &Settings,
    source: Source,
    place: &dyn Elsewhere,
    reference: &Reference,
    subject: Option<Descriptor>,
    lengths: impl FnOnce(u64) -> Lengths,
) -> Result<Moved, MoveError> {
    let progress = Progress::new(&reference.to_string());
    thread::scope(|scope| {
        let into = Outgoing::new(place, &progress, scope);
        send(settings, source, into, reference, subject, lengths)
    })
}

/// The manifest of the container image, if it is there.
fn subject(
    place: &dyn Elsewhere,
    arguments: &Arguments,
    source: &Source,
) -> Result<Option<Descriptor>, MoveError> {
    if let Some(named) = &arguments.subject {
        return Ok(Some(place.describe(named)?));
    }
    let named = annotations::of(source).remove(IMAGE_NAME);
    let named = named.and_then(|named| named.parse::<Reference>().ok());
    let beside = named.filter(|named| named.is_beside(&arguments.reference));
    match beside.map(|named| place.describe(named.tag())) {
        None | Some(Err(OciImageError::NoTag { .. })) => Ok(None),
        Some(found) => Ok(Some(found?)),
    }
}

fn send(
    settings: &Settings,
    mut source: Source,
    mut into: Outgoing<'_, '_>,
    reference: &Reference,
    subject: Option<Descriptor>,
    lengths: impl FnOnce(u64) -> Lengths,
) -> Result<Moved, MoveError> {
    let (place, tag) = (into.place(), reference.new_tag()?);
    let mut files: Vec<ImageFile> = source.of_criu().cloned().collect();
    let mut layers = vec![add_criu(&mut into, &source, &files)?];
    if let Some(engine) = &source.engine {
        layers.extend(engine::add(&mut into, engine)?);
    }
    let mut gathered = None;
    if let Some(Memory { index, reader, .. }) = &source.memory {
        let there = there(place, tag)?;
        let threads = threads(settings, index.tier);
        let memory = gather(index, reader, &there, lengths, threads, &mut into)?;
        into.wait()?;
        layers.extend(into.add_lists(&memory)?);
        layers.extend(memory.blobs.iter().map(layer));
        files.extend(files_of(&memory));
        gathered = Some(memory);
    }
    files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    source.manifest.files = Some(files);
    if let (Some(memory), Some(gathered)) = (&mut source.manifest.memory, &gathered) {
        memory.tier = gathered.index.tier;
        memory.boot_id = None;
    }
    let config = source.manifest.to_text();
    let config = config.map_err(|what| MoveError::NoImage {
        reference: reference.to_string(),
        what,
    })?;
    let config = into.add(&config)?;
    let manifest = Manifest::new(config, layers, annotations::of(&source));
    let manifest = manifest.with_subject(subject);
    let digest = place.tag(tag, &manifest)?;
    Ok(Moved {
        image: source.named.clone(),
        reference: reference.to_string(),
        digest: digest.to_string(),
        bytes: manifest.bytes(),
        moved_bytes: into.moved_bytes,
        blobs: gathered.map_or(0, |gathered| gathered.blobs.len()),
        moved_blobs: into.moved_blobs,
    })
}

fn add_criu(
    into: &mut Outgoing<'_, '_>,
    source: &Source,
    files: &[ImageFile],
) -> Result<Layer, MoveError> {
    let files: Vec<_> = files.iter().map(listed).collect();
    into.stream(Kind::Criu, |blob| {
        let packed = bundle::pack(&source.directory, &files, blob);
        packed.map_err(MoveError::io("pack the files of", &source.directory))
    })
}

/// What is known to be in blobs that are there. A list that cannot be read helps nobody, and is in
/// nobody's way.
fn there(place: &dyn Elsewhere, tag: &str) -> Result<Vec<BlobContents>, MoveError> {
    let mut there = Vec::new();
    for image in place.images(tag, EARLIER)? {
        let list = image.layer(Kind::Contents);
        let list = list.and_then(|list| place.read(list, MOST_CONTENTS_BYTES).ok());
        let blobs = list.and_then(|list| decode_contents(&list).ok());
        let is_there = |blob: &BlobContents| place.still_has(&blob.digest.into(), blob.bytes);
        there.extend(blobs.into_iter().flatten().filter(is_there));
    }
    Ok(there)
}

fn layer(blob: &BlobContents) -> (Kind, Digest, u64) {
    (Kind::Memory, blob.digest.into(), blob.bytes)
}

/// The files that an image has of its bulk memory once it is pulled.
fn files_of(memory: &Gathered) -> impl Iterator<Item = ImageFile> {
    let index = memory.index.encode();
    let index = ImageFile {
        name: INDEX_FILE.to_owned(),
        bytes: index.len() as u64,
        blake3: Some(blake3::hash(&index).to_hex().to_string()),
    };
    let packs = memory.blobs.iter();
    let packs = packs.filter_map(|blob| pack_of(&blob.digest, blob.bytes));
    let packs = packs.map(|pack| ImageFile {
        name: pack.file_name(),
        bytes: pack.bytes,
        blake3: None,
    });
    let packs: Vec<ImageFile> = packs.collect();
    std::iter::once(index).chain(packs)
}
