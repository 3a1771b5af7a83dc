//! An image whose contents are in blobs: its lists, and the files that it has once it is pulled.

use std::collections::HashSet;

use stasis_memory_store::{BlobContents, Gathered, INDEX_FILE, encode_contents, pack_of};
use stasis_oci_image::Kind;

use super::outgoing::{Layer, Outgoing};
use crate::cli::command_error::MoveError;
use crate::image::files::ImageFile;

/// What of it is in blobs.
pub(super) struct GatheredImage {
    /// CRIU's large files.
    pub(super) files: Option<Gathered>,
    /// Bulk memory.
    pub(super) memory: Option<Gathered>,
}

impl GatheredImage {
    /// All blobs, those of files first.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &BlobContents> {
        let sorts = [&self.files, &self.memory].into_iter().flatten();
        sorts.flat_map(|gathered| &gathered.blobs)
    }

    /// Adds the indexes and the list of contents; the layers of the image that are not CRIU's small
    /// files or an engine's.
    ///
    /// # Errors
    /// [`MoveError`].
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

    /// What is in which blob; one may be of both sorts.
    fn contents(&self) -> Vec<u8> {
        let mut seen = HashSet::new();
        let blobs = self.blobs().filter(|blob| seen.insert(blob.digest));
        let blobs: Vec<_> = blobs.cloned().collect();
        encode_contents(&blobs)
    }

    /// The files that the image has of its bulk memory once it is pulled.
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
