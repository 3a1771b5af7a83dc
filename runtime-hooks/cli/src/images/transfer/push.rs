//! `stasis push`: puts an image into a registry or an OCI layout.

mod outgoing;
mod plans;
mod progress;
mod remote_contents;

use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use stasis_config::Settings;
use stasis_engine::image::files::ImageFile;
use stasis_linux::file;
use stasis_memory_store::{BlobsOf, Lengths};
use stasis_oci_image::document::annotations::IMAGE_NAME;
use stasis_oci_image::{Descriptor, Kind, Manifest, OciImageError, Reference};
use stasis_transfer::Open as _;
use stasis_transfer::archive::{self, Compression};
use stasis_transfer::bundle::Listed;
use stasis_transfer::{Elsewhere, bundle};

use super::annotations;
use super::engine::{CHECKPOINT, WRITABLE};
use super::login::Login;
use super::report::{Moved, place_of};
use super::source::{Source, split};
use crate::answer::exit::Exit;
use crate::answer::{Output, show};
use crate::command_error::{CommandError, MoveError};
use crate::images::origin::Origin;
use outgoing::{Outgoing, Waiting};
use plans::{Plans, is_large, split_large};
use progress::Progress;
use remote_contents::RemoteContents;

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
    show(&pushed, arguments.output.format())?;
    Ok(Exit::Done)
}

pub(super) fn push(
    settings: &Settings,
    source: Source,
    place: &dyn Elsewhere,
    reference: &Reference,
    subject: Option<Descriptor>,
    lengths: impl Fn(BlobsOf, u64) -> Lengths,
) -> Result<Moved, MoveError> {
    let progress = Progress::new(&reference.to_string());
    thread::scope(|scope| {
        let into = Outgoing::new(place, &progress, scope);
        send(settings, source, into, reference, subject, lengths)
    })
}

/// Finds the manifest of the container image, if the registry or layout has it.
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
    lengths: impl Fn(BlobsOf, u64) -> Lengths,
) -> Result<Moved, MoveError> {
    let (place, tag) = (into.place(), reference.new_tag()?);
    let mut files: Vec<ImageFile> = source.of_criu().cloned().collect();
    files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let (large, small) = split(files.iter(), |_, file| is_large(file));
    let mut waiting = vec![gather_criu(&into, &source, &small)?];
    if let Some(engine) = &source.engine {
        waiting.extend(gather_engine(&into, engine)?);
    }
    let remote = RemoteContents::find(place, tag, &source, &large)?;
    let pieces = split_large(settings, &source, &large)?;
    let plans = Plans::of(settings, &source, pieces.as_ref(), &remote, lengths)?;
    // From here on all of the image is known to fit.
    let mut layers = into.finish(waiting)?;
    let gathered = plans.put(&mut into)?;
    into.wait()?;
    layers.extend(gathered.add_lists(&mut into)?);
    files.extend(gathered.files());
    files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    source.manifest.files = Some(files);
    if let (Some(memory), Some(gathered)) = (&mut source.manifest.memory, &gathered.memory) {
        memory.packs_in = gathered.index.packs_in;
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
        blobs: gathered.blobs().count(),
        moved_blobs: into.moved_blobs,
    })
}

fn gather_criu<'p>(
    into: &Outgoing<'_, 'p>,
    source: &Source,
    files: &[Listed<'_>],
) -> Result<Waiting<'p>, MoveError> {
    into.gather(Kind::Criu, "what CRIU has beside large files", |blob| {
        let packed = bundle::pack(&source.directory, files, blob);
        packed.map_err(MoveError::io("pack the files of", &source.directory))
    })
}

/// Makes blobs of an engine's files beside the image.
fn gather_engine<'p>(
    into: &Outgoing<'_, 'p>,
    beside: &Path,
) -> Result<Vec<Waiting<'p>>, MoveError> {
    let failed = || MoveError::io("pack the engine's files in", beside);
    let is_own = |name: &str| name != CHECKPOINT && name != WRITABLE;
    let what = "what the engine has put beside the image";
    let mut blobs = vec![into.gather(Kind::Engine, what, |blob| {
        archive::pack(beside, is_own, Compression::Zstd, blob).map_err(failed())
    })?];
    if let Some(written) = file::open(&beside.join(WRITABLE)).map_err(failed())? {
        let what = "the container's writable layer";
        blobs.push(into.gather(Kind::Writable, what, |blob| {
            archive::compress(written, blob).map_err(failed())
        })?);
    }
    Ok(blobs)
}
