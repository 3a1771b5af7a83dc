//! The parts of an image elsewhere: its small parts, the blobs of the rest, and the facts in the
//! small parts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stasis_engine::image::directory::INVENTORY;
use stasis_engine::image::files::ImageFile;
use stasis_engine::image::manifest::{FILE_NAME, Manifest as ImageManifest};
use stasis_engine::restore::admission::described::Described;
use stasis_memory_store::{
    INDEX_FILE, Index, LargeFile, Pack, PacksIn, pack_of, refuse_other_files,
};
use stasis_oci_image::{Descriptor, Digest, Kind, Manifest, Reference};

use crate::archive::bundle::Listed;
use crate::error::MoveError;
use crate::local::source::{is_of_criu, split};
use crate::moved::Moved;
use crate::places::{Elsewhere, open};

/// The parts of an image, all of which fit together.
pub(crate) struct Parts {
    pub(crate) reference: Reference,
    pub(crate) manifest: Manifest,
    /// The manifest's digest.
    pub(crate) digest: Digest,
    /// The image, as its small parts describe it.
    pub(crate) described: Described,
    pub(crate) config: Vec<u8>,
    pub(crate) files: Vec<ImageFile>,
    pub(crate) criu: Descriptor,
    /// The index of CRIU's large files.
    pub(crate) pieces: Option<Index>,
    /// The packs that CRIU's files are made of.
    pub(crate) packs_of_files: Vec<(Pack, Descriptor)>,
    pub(crate) index: Option<Vec<u8>>,
    /// The packs of bulk memory, in the order in which a restore reads them.
    pub(crate) packs: Vec<(Pack, Descriptor)>,
}

/// The two small documents of an image elsewhere.
#[derive(Debug)]
pub struct Documents {
    /// Its manifest there.
    pub manifest: Manifest,
    /// The digest of that.
    pub digest: Digest,
    /// Its own manifest, as it is written.
    pub(crate) config: Vec<u8>,
    /// Its own manifest.
    pub image: ImageManifest,
}

impl Documents {
    /// Fetches them; credentials are in a file, or root's own.
    ///
    /// # Errors
    /// There is no such image, or it is damaged.
    pub fn fetch(reference: &Reference, authfile: Option<&Path>) -> Result<Self, MoveError> {
        Self::read(&*open(reference, authfile)?, reference)
    }

    fn read(from: &dyn Elsewhere, reference: &Reference) -> Result<Self, MoveError> {
        let (manifest, digest) = from.manifest(reference.tag())?;
        let config = from.read(manifest.config(), manifest.config().size)?;
        let image = ImageManifest::from_text(Path::new(FILE_NAME), &config);
        Ok(Self {
            manifest,
            digest,
            image: image.map_err(MoveError::refused)?,
            config,
        })
    }
}

/// Blobs and bytes that an earlier pull has brought.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AlreadyFetched {
    pub(crate) blobs: usize,
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for AlreadyFetched {
    fn add_assign(&mut self, other: Self) {
        self.blobs += other.blobs;
        self.bytes += other.bytes;
    }
}

impl Parts {
    /// Looks an image up, and reads its small parts.
    pub(crate) fn find(from: &dyn Elsewhere, reference: &Reference) -> Result<Self, MoveError> {
        let Documents {
            manifest,
            digest,
            config,
            image,
        } = Documents::read(from, reference)?;
        let no_image = |what| MoveError::NoImage {
            reference: reference.to_string(),
            what,
        };
        let read = |kind| {
            let layer = manifest.layer(kind);
            layer.map(|layer| from.read(layer, layer.size)).transpose()
        };
        let blobs = |kind| manifest.layers(kind).cloned().collect();
        let index = read(Kind::Index)?;
        let decoded = index.as_deref().map(Index::decode).transpose()?;
        check_memory(&image, decoded.as_ref()).map_err(no_image)?;
        let mut packs = packs_of(decoded.as_ref(), blobs(Kind::Memory)).map_err(no_image)?;
        let pieces = read(Kind::FilesIndex)?;
        let pieces = pieces.as_deref().map(Index::decode).transpose()?;
        let packs_of_files = packs_of(pieces.as_ref(), blobs(Kind::Files)).map_err(no_image)?;
        let files = image.files.clone().unwrap_or_default();
        check_files(&files, index.is_some(), &packs).map_err(no_image)?;
        sort_by_need(decoded.as_ref(), &mut packs);
        let criu = manifest.layer(Kind::Criu).cloned();
        let parts = Self {
            reference: reference.clone(),
            digest,
            described: Described::of(image, decoded.as_ref()),
            config,
            files,
            criu: criu.ok_or_else(|| no_image("it has no files of CRIU".to_owned()))?,
            pieces,
            packs_of_files,
            index,
            packs,
            manifest,
        };
        parts.check_pieces().map_err(no_image)?;
        Ok(parts)
    }

    /// Reports a pull with so many blobs, some of which were found.
    pub(crate) fn pulled(&self, image: PathBuf, blobs: usize, found: AlreadyFetched) -> Moved {
        let bytes = self.manifest.bytes();
        Moved {
            image,
            reference: self.reference.to_string(),
            digest: self.digest.to_string(),
            bytes,
            moved_bytes: bytes - found.bytes,
            blobs,
            moved_blobs: blobs - found.blobs,
        }
    }

    fn check_pieces(&self) -> Result<(), String> {
        match &self.pieces {
            Some(pieces) => refuse_other_files(pieces, &self.of_criu().0),
            None => Ok(()),
        }
    }

    /// Returns CRIU's files that are cut into pieces, and the others.
    pub(crate) fn of_criu(&self) -> (Vec<LargeFile<'_>>, Vec<Listed<'_>>) {
        let processes = self.pieces.iter().flat_map(|pieces| &pieces.processes);
        let in_pieces: BTreeSet<i32> = processes.map(|process| process.pid).collect();
        let of_criu = self.files.iter().filter(|file| is_of_criu(file));
        split(of_criu, |number, _| in_pieces.contains(&number))
    }

    /// Returns all packs, the packs of CRIU's large files first. A pack that is memory as well is
    /// listed once.
    pub(crate) fn all_packs(&self) -> impl Iterator<Item = &(Pack, Descriptor)> {
        self.packs_that_go().chain(&self.packs)
    }

    /// Returns the packs that are removed once CRIU's files are made of them.
    pub(crate) fn packs_that_go(&self) -> impl Iterator<Item = &(Pack, Descriptor)> {
        let is_memory = |pack: &Pack| self.packs.iter().any(|(other, _)| other == pack);
        let of_files = self.packs_of_files.iter();
        of_files.filter(move |(pack, _)| !is_memory(pack))
    }

    /// Returns the bytes of all missing files, and of missing packs that are removed later.
    pub(crate) fn lacking(&self, is_there: impl Fn(&str, u64) -> bool) -> u64 {
        let files = self
            .files
            .iter()
            .map(|file| (file.name.clone(), file.bytes));
        let go = self.packs_that_go();
        let all = files.chain(go.map(|(pack, _)| (pack.file_name(), pack.bytes)));
        all.filter(|(name, bytes)| !is_there(name, *bytes))
            .fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }

    /// Returns the names of all packs, also of packs that are removed later.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.all_packs().map(|(pack, _)| pack.file_name()).collect()
    }
}

/// Checks that the manifest and the index are of the same checkpoint.
fn check_memory(image: &ImageManifest, index: Option<&Index>) -> Result<(), String> {
    let named = image.memory.as_ref();
    let is_its = match (named, index) {
        (Some(named), Some(index)) => {
            named.image_id == index.image_id
                && [named.packs_in, index.packs_in] == [PacksIn::Image; 2]
        }
        (None, index) => index.is_none_or(Index::is_empty),
        (Some(_), None) => false,
    };
    match is_its {
        true => Ok(()),
        false => Err("its manifest and its index are not of the same checkpoint".to_owned()),
    }
}

/// Pairs the packs of an index with the blobs, one for one.
fn packs_of(
    index: Option<&Index>,
    blobs: Vec<Descriptor>,
) -> Result<Vec<(Pack, Descriptor)>, String> {
    let packs = index.map_or(&[][..], |index| &index.packs);
    let in_image = index.is_none_or(|index| index.packs_in == PacksIn::Image);
    if packs.len() != blobs.len() || !in_image {
        return Err("its index does not have its blobs as packs".to_owned());
    }
    let pairs =
        packs.iter().zip(blobs).map(
            |(pack, blob)| match pack_of(blob.digest.bytes(), blob.size) {
                Some(named) if named == *pack => Ok((named, blob)),
                _ => Err(format!("its index does not have {} as a pack", blob.digest)),
            },
        );
    pairs.collect()
}

/// Sorts packs as a restore reads them: in the order of the index.
fn sort_by_need(index: Option<&Index>, packs: &mut [(Pack, Descriptor)]) {
    let mut order = Vec::new();
    for area in index.into_iter().flat_map(Index::areas) {
        for chunk in &area.chunks {
            if order.last() != Some(&chunk.place.pack) && !order.contains(&chunk.place.pack) {
                order.push(chunk.place.pack);
            }
        }
    }
    let listed = index.map_or(&[][..], |index| &index.packs);
    packs.sort_by_cached_key(|(pack, _)| {
        let number = (0..).zip(listed).find(|(_, each)| *each == pack);
        let needed = number.and_then(|(number, _)| order.iter().position(|each| *each == number));
        needed.unwrap_or(usize::MAX)
    });
}

/// Checks that its files are listed, and nothing else is.
fn check_files(
    files: &[ImageFile],
    has_index: bool,
    packs: &[(Pack, Descriptor)],
) -> Result<(), String> {
    let others = files.iter().filter(|file| !is_of_criu(file));
    let listed: BTreeSet<_> = others
        .map(|file| (file.name.clone(), file.blake3.is_some()))
        .collect();
    let index = has_index.then(|| (INDEX_FILE.to_owned(), true));
    let packs = packs.iter().map(|(pack, _)| (pack.file_name(), false));
    let expected: BTreeSet<_> = packs.chain(index).collect();
    let is_last_of_criu = |file: &ImageFile| file.name == INVENTORY;
    if listed != expected || !files.iter().any(is_last_of_criu) {
        return Err("its list of files is not that of its parts".to_owned());
    }
    Ok(())
}
