//! Puts images into registries and OCI layouts.

mod annotations;
mod outgoing;
mod plans;
mod remote_contents;

use std::path::Path;
use std::thread;

use stasis_config::Settings;
use stasis_engine::image::files::ImageFile;
use stasis_linux::file;
use stasis_memory_store::{BlobsOf, Lengths};
use stasis_oci_image::document::annotations::IMAGE_NAME;
use stasis_oci_image::{Descriptor, Kind, Manifest, OciImageError, Reference};

use crate::archive::bundle::{self, Listed};
use crate::archive::{self, CHECKPOINT, Compression, WRITABLE};
use crate::error::MoveError;
use crate::local::origin::Origin;
use crate::local::source::{Source, split};
use crate::moved::Moved;
use crate::places::{Elsewhere, open_or_make};
use outgoing::{Outgoing, Waiting};
use plans::{Plans, is_large, split_large};
use remote_contents::RemoteContents;

/// An image that is to be pushed, and to where.
#[derive(Debug, Clone, Copy)]
pub struct PushRequest<'a> {
    /// The destination; a layout is made.
    pub reference: &'a Reference,
    /// The image's directory, or an engine's archive.
    pub image: &'a Path,
    /// The tag or digest of the checkpoint's container image there; the one that the engine names,
    /// if it is there, without it.
    pub subject: Option<&'a str>,
    /// A file with credentials; root's own without it.
    pub authfile: Option<&'a Path>,
}

/// Hears of the bulk memory that the other side lacks.
pub trait Progress: Sync {
    /// So many more bytes have been gathered.
    fn gathered(&self, bytes: u64);
    /// A blob of so many bytes is stored.
    fn sent(&self, bytes: u64);
}

/// Nobody waits.
impl Progress for () {
    fn gathered(&self, _: u64) {}
    fn sent(&self, _: u64) {}
}

impl PushRequest<'_> {
    /// Moves what is missing there, and verifies the image as a restore does.
    ///
    /// # Errors
    /// The image is not there then, and earlier contents are unchanged.
    pub fn push(&self, settings: &Settings, progress: &dyn Progress) -> Result<Moved, MoveError> {
        let source = Source::open(settings, self.image)?;
        let place = open_or_make(self.reference, self.authfile)?;
        let subject = self.subject(&*place, &source)?;
        let by = (self.reference, subject);
        let pushed = push(settings, source, &*place, by, progress, Lengths::of)?;
        if self.image.is_dir() {
            Origin::note_pushed(self.image, pushed.place());
        }
        Ok(pushed)
    }

    /// Finds the manifest of the container image, if the registry or layout has it.
    fn subject(
        &self,
        place: &dyn Elsewhere,
        source: &Source,
    ) -> Result<Option<Descriptor>, MoveError> {
        if let Some(named) = self.subject {
            return Ok(Some(place.describe(named)?));
        }
        let named = annotations::of(source).remove(IMAGE_NAME);
        let named = named.and_then(|named| named.parse::<Reference>().ok());
        let beside = named.filter(|named| named.is_beside(self.reference));
        match beside.map(|named| place.describe(named.tag())) {
            None | Some(Err(OciImageError::NoTag { .. })) => Ok(None),
            Some(found) => Ok(Some(found?)),
        }
    }
}

/// Pushes an image under a tag, as a checkpoint of a container image, if that is known.
pub(crate) fn push(
    settings: &Settings,
    source: Source,
    place: &dyn Elsewhere,
    (reference, subject): (&Reference, Option<Descriptor>),
    progress: &dyn Progress,
    lengths: impl Fn(BlobsOf, u64) -> Lengths,
) -> Result<Moved, MoveError> {
    thread::scope(|scope| {
        let into = Outgoing::new(place, progress, scope);
        send(settings, source, into, reference, subject, lengths)
    })
}

fn send(
    settings: &Settings,
    mut source: Source,
    mut into: Outgoing<'_, '_>,
    reference: &Reference,
    subject: Option<Descriptor>,
    lengths: impl Fn(BlobsOf, u64) -> Lengths,
) -> Result<Moved, MoveError> {
    let (place, tag) = (into.place, reference.new_tag()?);
    let mut files: Vec<ImageFile> = source.of_criu().cloned().collect();
    files.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let (large, small) = split(files.iter(), |_, file| is_large(file));
    let mut waiting = vec![gather_criu(&into, &source, &small)?];
    if let Some(engine) = &source.engine {
        waiting.extend(gather_engine(&into, engine)?);
    }
    let remote = RemoteContents::find(place, tag, &source, &large)?;
    let pieces = split_large(settings, &source, &large)?;
    let mut plans = Plans::of(settings, &source, pieces.as_ref(), &remote, lengths)?;
    plans.verify_kept(settings, place)?;
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
    // Other programs remove blobs that no image names yet.
    place.expect(&manifest)?;
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
