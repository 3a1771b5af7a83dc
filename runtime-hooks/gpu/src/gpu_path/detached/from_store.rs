//! Gives contents back from the store, once no process holds their file any more.

use std::io;
use std::path::Path;

use stasis_injection::contents_of;
use stasis_linux::ProcessRef;
use stasis_memory_store::{ImagePlace, Index};

use super::in_file::InFile;
use super::load::{Contents, Load, Until};
use super::record::{self, Detached, are_held, want};
use super::{PATIENCE, map_again};
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::process::threads;

/// Waits for the holder of the contents to give them back, and once it has ended gives back from
/// the store the contents that are still detached; `directory` is the operation's.
///
/// # Errors
/// Some are still detached.
pub(super) fn give_back_from_store(directory: &Path) -> io::Result<()> {
    if record::read(directory)?.is_none() {
        return Ok(());
    }
    // The holder tries as long, each process after the other.
    let _lock = want(directory, 2 * PATIENCE)?;
    // The holder may have given the contents back meanwhile.
    if let Some(detached) = record::read(directory)? {
        let lacking = lacking(&detached)?;
        if !lacking.is_empty() {
            let image = match place_of(&detached) {
                ImagePlace::At(place) => place,
                ImagePlace::Unknown(error) => return Err(io::Error::other(error)),
                ImagePlace::OfAnother | ImagePlace::Nowhere => return Err(gone(&detached)),
            };
            let load = Load {
                image,
                image_id: detached.image_id,
                store: detached.store,
                threads: threads().get(),
                until: Until::Loaded(None),
            };
            let loaded = load.load()?;
            for (process, in_file) in lacking {
                give_back(&process, &in_file, &loaded)?;
            }
        }
    }
    record::remove(directory);
    Ok(())
}

/// The place of contents of a process, which a checkpoint may have detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gpu_path) enum Whereabouts {
    /// In the process.
    InIt,
    /// They can be given back, or that is not known.
    Detached,
    /// No process holds them, and their image is gone.
    Lost,
}

impl Whereabouts {
    /// Finds the contents of a process of the container that has this directory of its operations.
    /// A record that cannot be read may be of any process.
    pub(in crate::gpu_path) fn of(process: &ProcessRef, directory: &Path) -> Self {
        let id = ProcessId::of(process);
        let detached = match record::read(directory) {
            Ok(None) => return Self::InIt,
            Ok(Some(detached)) => detached,
            Err(_) => return Self::Detached,
        };
        if !detached
            .in_files
            .iter()
            .any(|in_file| in_file.process == id)
        {
            return Self::InIt;
        }
        match are_held(directory) {
            false if place_of(&detached).is_none() => Self::Lost,
            _ => Self::Detached,
        }
    }
}

fn place_of(detached: &Detached) -> ImagePlace {
    Index::find(&detached.places, detached.image_id)
}

fn gone(detached: &Detached) -> io::Error {
    let place = detached.places.last().map(|place| place.display());
    let place = place.map_or_else(String::new, |place| place.to_string());
    io::Error::other(format!(
        "who held them was killed, and their image {} is not in {place} any more",
        detached.image_id
    ))
}

/// Returns the processes that live and lack contents that were detached.
fn lacking(detached: &Detached) -> io::Result<Vec<(ProcessRef, InFile)>> {
    let mut lacking = Vec::new();
    for in_file in &detached.in_files {
        if let Some(process) = in_file.process.open()?
            && !contents_of(&process)?.contains(&in_file.contents)
        {
            lacking.push((process, *in_file));
        }
    }
    Ok(lacking)
}

fn give_back(process: &ProcessRef, in_file: &InFile, loaded: &[Contents]) -> io::Result<()> {
    let own = loaded.iter().find(|own| own.is_of(in_file));
    let own = own.ok_or_else(|| {
        let pid = in_file.pid;
        io::Error::other(format!("the store has no contents of process {pid}"))
    })?;
    map_again(process, in_file.contents, &own.from)
}
