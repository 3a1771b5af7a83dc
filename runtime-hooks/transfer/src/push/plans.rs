//! Which contents of an image are in blobs that exist, and which are put into new ones; the lists
//! of the image then, and the files that it has once it is pulled.

use std::collections::HashSet;

use stasis_config::Settings;
use stasis_engine::image::files::ImageFile;
use stasis_memory_store::{
    BlobContents, BlobsOf, Gathered, INDEX_FILE, Index, LargeFile, Lengths, MOST_CONTENTS_BYTES,
    PAGE, Plan, Reader, StoreError, encode_contents, pack_of, split_files,
};
use stasis_oci_image::Kind;

use crate::error::MoveError;
use crate::local::source::{Memory, Source};
use crate::places::Elsewhere;
use crate::push::outgoing::{Layer, Outgoing};
use crate::push::remote_contents::RemoteContents;

/// Smaller files have too little in common with others to be cut into pieces.
const LARGE: u64 = 4 << 20;

/// Returns whether a file has pages of memory (their name: criu/image-desc.c), and enough of them.
pub(super) fn is_large(file: &ImageFile) -> bool {
    let is_of_pages = file.name.starts_with("pages-") && file.bytes.is_multiple_of(PAGE as u64);
    is_of_pages && file.bytes >= LARGE
}

/// Cuts large files into pieces, if there are any.
pub(super) fn split_large(
    settings: &Settings,
    source: &Source,
    large: &[LargeFile<'_>],
) -> Result<Option<(Index, Reader)>, MoveError> {
    if large.is_empty() {
        return Ok(None);
    }
    let threads = settings.gpu_contents.threads_on_disk();
    let cut = split_files(&source.directory, large, threads)?;
    Ok(Some(cut))
}

/// The plans for files and memory.
pub(super) struct Plans<'i> {
    files: Option<Plan<'i>>,
    memory: Option<Plan<'i>>,
}

impl<'i> Plans<'i> {
    /// Reads all of the image.
    pub(super) fn of(
        settings: &Settings,
        source: &'i Source,
        pieces: Option<&'i (Index, Reader)>,
        remote: &RemoteContents,
        lengths: impl Fn(BlobsOf, u64) -> Lengths,
    ) -> Result<Self, MoveError> {
        let plan = |sort, index: &'i Index, reader, remote: &[_]| {
            let threads = settings.gpu_contents.threads();
            Plan::of(
                sort,
                index,
                reader,
                remote,
                |bytes| lengths(sort, bytes),
                threads,
            )
        };
        let of_files = |(index, reader): &'i (Index, Reader)| {
            plan(BlobsOf::Files, index, reader, &remote.files)
        };
        let of_memory = |Memory { index, reader, .. }: &'i Memory| {
            plan(BlobsOf::Memory, index, reader, &remote.memory)
        };
        let plans = Self {
            files: pieces.map(of_files).transpose()?,
            memory: source.memory.as_ref().map(of_memory).transpose()?,
        };
        let sorts = [&plans.files, &plans.memory].into_iter().flatten();
        let listed: u64 = sorts.map(Plan::most_listed_bytes).sum();
        if listed > MOST_CONTENTS_BYTES {
            let most = MOST_CONTENTS_BYTES;
            let what = format!("its list of contents may have {listed} bytes, and at most {most}");
            return Err(StoreError::TooMuch { what }.into());
        }
        Ok(plans)
    }

    /// Gives up blobs of the other side that it lost, or that are damaged.
    pub(super) fn verify_kept(
        &mut self,
        settings: &Settings,
        place: &dyn Elsewhere,
    ) -> Result<(), MoveError> {
        let is_good = |blob: &BlobContents| place.still_has(&blob.digest.into(), blob.bytes);
        let threads = settings.gpu_contents.threads();
        let plans = [&mut self.files, &mut self.memory].into_iter().flatten();
        let mut verified = plans.map(|plan| plan.retain_kept(is_good, threads));
        Ok(verified.try_for_each(|verified| verified)?)
    }

    /// Puts new blobs, files first: a restore begins with them.
    pub(super) fn put(self, into: &mut Outgoing<'_, '_>) -> Result<GatheredImage, MoveError> {
        let files = self.files.map(|plan| plan.put(into)).transpose()?;
        let memory = self.memory.map(|plan| plan.put(into)).transpose()?;
        Ok(GatheredImage { files, memory })
    }
}

/// The parts of an image that are in blobs.
pub(super) struct GatheredImage {
    /// CRIU's large files.
    pub(super) files: Option<Gathered>,
    /// Bulk memory.
    pub(super) memory: Option<Gathered>,
}

impl GatheredImage {
    /// Returns all blobs, the files' first.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &BlobContents> {
        let sorts = [&self.files, &self.memory].into_iter().flatten();
        sorts.flat_map(|gathered| &gathered.blobs)
    }

    /// Adds the indexes and the list of contents; returns the layers of the image that are not
    /// CRIU's small files or an engine's.
    pub(super) fn add_lists(&self, into: &mut Outgoing<'_, '_>) -> Result<Vec<Layer>, MoveError> {
        let mut layers = Vec::new();
        for (gathered, index, blobs) in [
            (&self.files, Kind::FilesIndex, Kind::Files),
            (&self.memory, Kind::Index, Kind::Memory),
        ] {
            if let Some(gathered) = gathered {
                let (digest, bytes) = into.add(&gathered.index.encode())?;
                layers.push((index, digest, bytes));
                let of_blob = |blob: &BlobContents| (blobs, blob.digest.into(), blob.bytes);
                layers.extend(gathered.blobs.iter().map(of_blob));
            }
        }
        if !layers.is_empty() {
            let (digest, bytes) = into.add(&self.contents())?;
            layers.push((Kind::Contents, digest, bytes));
        }
        Ok(layers)
    }

    /// Encodes the contents of each blob once; a blob may be of both sorts.
    fn contents(&self) -> Vec<u8> {
        let mut seen = HashSet::new();
        let blobs = self.blobs().filter(|blob| seen.insert(blob.digest));
        let blobs: Vec<_> = blobs.cloned().collect();
        encode_contents(&blobs)
    }

    /// Lists the files that the image has of its bulk memory once it is pulled.
    pub(super) fn files(&self) -> Vec<ImageFile> {
        self.memory.iter().flat_map(files_of).collect()
    }
}

fn files_of(memory: &Gathered) -> Vec<ImageFile> {
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
    std::iter::once(index).chain(packs).collect()
}
