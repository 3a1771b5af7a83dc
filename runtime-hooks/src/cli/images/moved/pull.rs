//! An image from where registries' images are, whole before it has its name.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use stasis_config::Settings;
use stasis_memory_store::{INDEX_FILE, Index, Pack, Tier, pack_header, pack_of};
use stasis_oci_image::digest::Hashed;
use stasis_oci_image::{Descriptor, Elsewhere, Kind, Manifest, Reference, bundle};

use super::noted::Noted;
use super::report::Moved;
use super::source::{is_of_criu, listed};
use super::staging::Staging;
use crate::bulk_memory::request::threads;
use crate::cli::command_error::MoveError;
use crate::image::directory::INVENTORY;
use crate::image::files::{self, ImageFile};
use crate::image::manifest::{FILE_NAME, Manifest as ImageManifest};

/// So many blobs come at a time: one connection does not use a fast network up.
const AT_ONCE: usize = 4;

pub(super) fn pull(
    settings: &Settings,
    from: &dyn Elsewhere,
    reference: &Reference,
    into: &Path,
) -> Result<Moved, MoveError> {
    let (manifest, digest) = from.manifest(reference.tag())?;
    from.expect(&manifest)?;
    let parts = Parts::read(from, &manifest, reference)?;
    let staging = Staging::begin(into)?;
    let packs: BTreeSet<_> = parts
        .packs
        .iter()
        .map(|(pack, _)| pack.file_name())
        .collect();
    staging.keep_only(&packs)?;
    match fill(settings, from, &parts, &staging) {
        Ok(fetched) => Ok(Moved {
            image: staging.finish()?,
            reference: reference.to_string(),
            digest: digest.to_string(),
            bytes: manifest.bytes(),
            moved_bytes: manifest.bytes() - fetched.found_bytes,
            blobs: packs.len(),
            moved_blobs: packs.len() - fetched.found_blobs,
        }),
        Err(error) => {
            staging.give_up(&packs);
            Err(error)
        }
    }
}

/// What need not be fetched, since a pull that was cut off has verified it.
#[derive(Default)]
struct Fetched {
    found_bytes: u64,
    found_blobs: usize,
}

/// Fetches every part that is not there yet, and verifies all that the manifest lists.
fn fill(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    staging: &Staging,
) -> Result<Fetched, MoveError> {
    let (there, missing): (Vec<_>, Vec<_>) = parts
        .packs
        .iter()
        .partition(|(pack, _)| staging.has(&pack.file_name(), pack.bytes));
    let fetched = Fetched {
        found_bytes: there.iter().map(|(_, blob)| blob.size).sum(),
        found_blobs: there.len(),
    };
    fetch_side_by_side(from, &missing, staging)?;
    fetch_criu(from, parts, staging)?;
    if let Some(index) = &parts.index {
        staging.write(INDEX_FILE, &[], index.as_slice(), |_| Ok(()))?;
    }
    staging.write(FILE_NAME, &[], parts.config.as_slice(), |_| Ok(()))?;
    let threads = threads(settings, Tier::Disk);
    files::verify(staging.path(), &parts.files, threads).map_err(MoveError::refused)?;
    Ok(fetched)
}

/// Fetches packs, several at a time; if one fails, no other is begun.
fn fetch_side_by_side(
    from: &dyn Elsewhere,
    packs: &[&(Pack, Descriptor)],
    staging: &Staging,
) -> Result<(), MoveError> {
    let left = Mutex::new(packs.iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<(), MoveError> {
        while let Some((pack, blob)) = next() {
            fetch(from, blob, pack, staging).inspect_err(|_| while next().is_some() {})?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..AT_ONCE).map(|_| scope.spawn(work)).collect();
        others.into_iter().fold(work(), |result, other| {
            let panicked = |_| io::Error::other("a thread panicked");
            let other = other.join().map_err(panicked);
            result.and(other.map_err(MoveError::io("fill", staging.path()))?)
        })
    })
}

/// What an image consists of, all of which fits together.
pub(super) struct Parts {
    pub(super) config: Vec<u8>,
    pub(super) files: Vec<ImageFile>,
    criu: Descriptor,
    pub(super) index: Option<Vec<u8>>,
    pub(super) packs: Vec<(Pack, Descriptor)>,
}

impl Parts {
    /// Reads the small ones.
    pub(super) fn read(
        from: &dyn Elsewhere,
        manifest: &Manifest,
        reference: &Reference,
    ) -> Result<Self, MoveError> {
        let no_image = |what| MoveError::NoImage {
            reference: reference.to_string(),
            what,
        };
        let config = from.read(manifest.config(), manifest.config().size)?;
        let image = ImageManifest::from_text(Path::new(FILE_NAME), &config);
        let image = image.map_err(MoveError::refused)?;
        let index = manifest.layer(Kind::Index);
        let index = index.map(|index| from.read(index, index.size));
        let index = index.transpose()?;
        let decoded = index.as_deref().map(Index::decode).transpose()?;
        let blobs: Vec<_> = manifest.layers(Kind::Memory).cloned().collect();
        let packs = packs_of(&image, decoded.as_ref(), blobs).map_err(no_image)?;
        let files = image.files.unwrap_or_default();
        check_files(&files, index.is_some(), &packs).map_err(no_image)?;
        let criu = manifest.layer(Kind::Criu).cloned();
        Ok(Self {
            config,
            files,
            criu: criu.ok_or_else(|| no_image("it has no files of CRIU".to_owned()))?,
            index,
            packs,
        })
    }
}

/// The packs of the index, which are the blobs, one for one.
fn packs_of(
    image: &ImageManifest,
    index: Option<&Index>,
    blobs: Vec<Descriptor>,
) -> Result<Vec<(Pack, Descriptor)>, String> {
    let named = image.memory.as_ref();
    let is_its = match (named, index) {
        (Some(named), Some(index)) => {
            named.image_id == index.image_id && [named.tier, index.tier] == [Tier::Portable; 2]
        }
        (None, index) => index.is_none_or(Index::is_empty),
        (Some(_), None) => false,
    };
    if !is_its {
        return Err("its manifest and its index are not of the same checkpoint".to_owned());
    }
    let packs = index.map_or(&[][..], |index| &index.packs);
    if packs.len() != blobs.len() {
        return Err("its index does not have its blobs of memory as packs".to_owned());
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

/// Its files are listed, and nothing else is.
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

fn fetch(
    from: &dyn Elsewhere,
    blob: &Descriptor,
    pack: &Pack,
    staging: &Staging,
) -> Result<(), MoveError> {
    let contents = Hashed::new(from.reader(blob)?);
    staging.write(&pack.file_name(), &pack_header(pack), contents, |read| {
        whole(blob, read)
    })
}

pub(super) fn fetch_criu(
    from: &dyn Elsewhere,
    parts: &Parts,
    staging: &Staging,
) -> Result<(), MoveError> {
    let files: Vec<_> = parts.files.iter().filter(|file| is_of_criu(file)).collect();
    let files: Vec<_> = files.into_iter().map(listed).collect();
    let mut contents = Noted::new(Hashed::new(from.reader(&parts.criu)?));
    let unpacked = bundle::unpack(&mut contents, &files, staging.path());
    let unpacked = contents.failed().map_or(unpacked, Err);
    unpacked.map_err(MoveError::io("unpack CRIU's files into", staging.path()))?;
    let mut contents = contents.inner;
    let rest = io::copy(&mut contents, &mut io::sink());
    rest.map_err(MoveError::io("read CRIU's files for", staging.path()))?;
    whole(&parts.criu, contents)
}

pub(super) fn whole<R>(blob: &Descriptor, read: Hashed<R>) -> Result<(), MoveError> {
    Ok(blob.check(read)?)
}
