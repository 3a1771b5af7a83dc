//! An image from where registries' images are, whole before it has its name.

pub(super) mod of_criu;
pub(super) mod parts;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use stasis_config::Settings;
use stasis_memory_store::{INDEX_FILE, Pack};
use stasis_oci_image::{Descriptor, Elsewhere, Reference};

use super::report::Moved;
use super::staging::{Staging, part_of};
use crate::cli::command_error::MoveError;
use crate::image::files;
use crate::image::manifest::FILE_NAME;
use of_criu::make_criu;
use parts::Parts;

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
    let packs = parts.names();
    let kept = packs.iter().map(|name| part_of(name)).chain(packs.clone());
    let kept = kept.collect();
    staging.keep_only(&kept)?;
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
            staging.give_up(&kept);
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
    let fetched = fetch_lacking(from, parts.all_packs(), staging)?;
    make_criu(settings, from, parts, staging)?;
    if let Some(index) = &parts.index {
        staging.write(INDEX_FILE, index)?;
    }
    staging.write(FILE_NAME, &parts.config)?;
    let threads = settings.gpu_contents.threads_on_disk();
    files::verify(staging.path(), &parts.files, threads).map_err(MoveError::refused)?;
    Ok(fetched)
}

/// Fetches the packs that are not there yet.
fn fetch_lacking<'p>(
    from: &dyn Elsewhere,
    packs: impl Iterator<Item = &'p (Pack, Descriptor)>,
    staging: &Staging,
) -> Result<Fetched, MoveError> {
    let (there, missing): (Vec<_>, Vec<_>) =
        packs.partition(|(pack, _)| staging.has(&pack.file_name(), pack.bytes));
    let in_part = fetch_side_by_side(from, &missing, staging)?;
    let whole: u64 = there.iter().map(|(_, blob)| blob.size).sum();
    Ok(Fetched {
        found_bytes: whole + in_part,
        found_blobs: there.len(),
    })
}

/// Fetches packs, several at a time; if one fails, no other is begun. Returns how much of them was
/// there already, bytes.
fn fetch_side_by_side(
    from: &dyn Elsewhere,
    packs: &[&(Pack, Descriptor)],
    staging: &Staging,
) -> Result<u64, MoveError> {
    let found = AtomicU64::new(0);
    let left = Mutex::new(packs.iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || -> Result<(), MoveError> {
        while let Some((pack, blob)) = next() {
            let there = staging.write_pack((pack, blob), from);
            let there = there.inspect_err(|_| while next().is_some() {})?;
            found.fetch_add(there, Ordering::Relaxed);
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
    })?;
    Ok(found.into_inner())
}
