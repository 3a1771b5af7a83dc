//! A pull into a directory: the image is whole before it gets its name.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use stasis_config::Settings;
use stasis_engine::image::disk_space;
use stasis_engine::image::files;
use stasis_engine::image::files::hash::in_threads;
use stasis_engine::image::manifest::FILE_NAME;
use stasis_linux::file;
use stasis_memory_store::{INDEX_FILE, Pack, write_files};
use stasis_oci_image::Descriptor;

use crate::archive::bundle;
use crate::error::MoveError;
use crate::moved::Moved;
use crate::places::Elsewhere;
use crate::pull::noted::unpack_blob;
use crate::pull::parts::{AlreadyFetched, Parts};
use crate::pull::staging::{Staging, part_of};

/// Blobs fetched at a time: one connection does not use up a fast network.
const AT_ONCE: usize = 4;

pub(crate) fn pull(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    into: &Path,
) -> Result<Moved, MoveError> {
    let staging = Staging::begin(into)?;
    let packs = parts.names();
    let kept = packs.iter().map(|name| part_of(name)).chain(packs.clone());
    let kept = kept.collect();
    staging.beside.keep_only(&kept)?;
    let fetched = fetch(settings, from, parts, parts.all_packs(), &staging).and_then(|found| {
        let threads = settings.gpu_contents.threads_on_disk();
        let verified = files::verify(staging.path(), &parts.files, threads);
        verified.map(|()| found).map_err(MoveError::refused)
    });
    match fetched {
        Ok(found) => Ok(parts.pulled(staging.finish()?, packs.len(), found)),
        Err(error) => {
            staging.beside.leave(&kept);
            Err(error)
        }
    }
}

/// Fetches these packs, and all parts that are no packs. The packs of which CRIU's large files are
/// made are among them.
pub(crate) fn fetch<'p>(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &'p Parts,
    packs: impl Iterator<Item = &'p (Pack, Descriptor)>,
    staging: &Staging,
) -> Result<AlreadyFetched, MoveError> {
    let needed = parts.lacking(|name, bytes| staging.has(name, bytes));
    refuse_full(parts, staging.path(), needed)?;
    let found = fetch_lacking(from, packs, staging)?;
    let into = staging.path();
    let (large, small) = parts.of_criu();
    unpack_blob(from, &parts.criu, into, |contents| {
        bundle::unpack(contents, &small, into)
    })?;
    if let Some(pieces) = &parts.pieces {
        let threads = settings.gpu_contents.threads_on_disk();
        write_files(into, pieces, &large, threads)?;
    }
    for (pack, _) in parts.packs_that_go() {
        let path = into.join(pack.file_name());
        file::remove(&path).map_err(MoveError::io("remove", &path))?;
    }
    if let Some(index) = &parts.index {
        staging.write(INDEX_FILE, index)?;
    }
    staging.write(FILE_NAME, &parts.config)?;
    Ok(found)
}

/// Refuses an image before its first byte comes if there is no room for what it lists: CRIU's files
/// are compressed, and a small blob may be as much of them as it likes.
pub(crate) fn refuse_full(parts: &Parts, directory: &Path, needed: u64) -> Result<(), MoveError> {
    let free = disk_space::free(directory);
    match free.map_err(MoveError::io("look at the file system of", directory))? {
        Some(free) if free < needed => Err(MoveError::NoRoom {
            reference: parts.reference.to_string(),
            directory: directory.to_owned(),
            needed,
            free,
        }),
        _ => Ok(()),
    }
}

/// Fetches missing packs, several at a time; if one fails, no other is begun. Returns the packs
/// that need not be fetched, since a pull that was cut off has brought them.
fn fetch_lacking<'p>(
    from: &dyn Elsewhere,
    packs: impl Iterator<Item = &'p (Pack, Descriptor)>,
    staging: &Staging,
) -> Result<AlreadyFetched, MoveError> {
    let (there, missing): (Vec<_>, Vec<_>) =
        packs.partition(|(pack, _)| staging.has(&pack.file_name(), pack.bytes));
    let left = Mutex::new(missing.into_iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let fetched = in_threads(AT_ONCE, || {
        let mut bytes = 0;
        while let Some((pack, blob)) = next() {
            let there = staging.write_pack((pack, blob), from);
            bytes += there.inspect_err(|_| while next().is_some() {})?;
        }
        Ok(bytes)
    });
    let in_part: u64 = fetched.into_iter().sum::<Result<_, MoveError>>()?;
    Ok(AlreadyFetched {
        blobs: there.len(),
        bytes: in_part + there.iter().map(|(_, blob)| blob.size).sum::<u64>(),
    })
}
