//! An image that can be restored while it arrives: all but its bulk memory is fetched first, and
//! then the directory gets its name, with packs that grow.

use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::error::chain;
use stasis_engine::image::directory::in_use::{self, InUse};
use stasis_engine::image::files;
use stasis_linux::file;
use stasis_memory_store::{Arrived, Arriving, Fetched, Fetching, Pack, StoreError, is_pack_name};
use stasis_oci_image::Descriptor;

use crate::error::MoveError;
use crate::moved::Moved;
use crate::places::Elsewhere;
use crate::pull::arriving::side_by_side::{Source, fetch_all};
use crate::pull::parts::{AlreadyFetched, Parts};
use crate::pull::staging::Staging;
use crate::pull::staging::in_part::begin;
use crate::pull::whole::fetch;

/// An image whose bulk memory is still to come.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) image: PathBuf,
    packs: Vec<(Pack, Descriptor)>,
    fetching: Fetching,
    /// Keeps others from removing it meanwhile.
    _in_use: InUse,
}

impl Coming {
    /// Fetches what a restore needs to begin, into a directory that does not exist yet or is empty;
    /// or resumes one in which the same image has arrived in part. [`MoveError::Busy`]: another
    /// process does so now; [`MoveError::There`]: an image exists, or the rest of another one.
    pub(super) fn begin(
        settings: &Settings,
        from: &dyn Elsewhere,
        parts: &Parts,
        into: &Path,
    ) -> Result<Self, MoveError> {
        let (image, fetching, in_use) = match Arriving::find(into)? {
            Some(arriving) => begin_resumed(settings, &arriving, parts, into)?,
            None => begin_anew(settings, from, parts, into)?,
        };
        Ok(Self {
            image,
            packs: parts.packs.clone(),
            fetching,
            _in_use: in_use,
        })
    }

    /// Fetches the rest. However it ends, the readers of the image receive the result. If it fails,
    /// the next pull into the directory goes on.
    pub(super) fn finish(self, source: Source) -> Result<AlreadyFetched, MoveError> {
        let image = self.image;
        let fetched = fetch_all(image.clone(), self.packs, source).and_then(|found| {
            // Its packs are on disk, each since it was verified.
            let synced = file::sync_directory(&image);
            synced
                .map_err(MoveError::io("sync", &image))
                .map(|()| found)
        });
        let failed = fetched.as_ref().err().map(|error| chain(error));
        let said = self.fetching.end(&image, failed.as_deref());
        let found = fetched?;
        said?;
        file::sync_directory(&image).map_err(MoveError::io("sync", &image))?;
        Ok(found)
    }
}

/// Returns whether a directory has an image that is recorded as arriving, and not as whole.
pub(crate) fn has_arrived_in_part(directory: &Path) -> Result<bool, MoveError> {
    let arriving = Arriving::find(directory)?;
    Ok(match arriving {
        Some(arriving) => arriving.arrived()? != Arrived::Whole,
        None => false,
    })
}

/// Fetches the rest of an image that has arrived in part.
pub(crate) fn resume_pull(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    authfile: Option<&Path>,
    into: &Path,
) -> Result<Moved, MoveError> {
    let coming = Coming::begin(settings, from, parts, into)?;
    let image = coming.image.clone();
    let found = coming.finish(Source {
        reference: parts.reference.clone(),
        authfile: authfile.map(Path::to_owned),
        stalled: settings.deadlines.stalled(),
    })?;
    Ok(parts.pulled(image, parts.packs.len(), found))
}

/// An image directory with packs that grow, the pull's locked file in it, and its own lock.
type Begun = (PathBuf, Fetching, InUse);

fn begin_anew(
    settings: &Settings,
    from: &dyn Elsewhere,
    parts: &Parts,
    into: &Path,
) -> Result<Begun, MoveError> {
    let staging = Staging::begin(into)?;
    let names = parts.names();
    staging.beside.keep_only(&names)?;
    let begun = fetch(settings, from, parts, parts.packs_of_files.iter(), &staging)
        .and_then(|_| begin_packs(settings, parts, staging.path()))
        .and_then(|()| Ok(Fetching::begin(staging.path(), &fetched(parts))?));
    let fetching = begun.inspect_err(|_| staging.beside.leave(&names))?;
    let (image, in_use) = staging.show()?;
    Ok((image, fetching, in_use))
}

fn begin_resumed(
    settings: &Settings,
    arriving: &Arriving,
    parts: &Parts,
    into: &Path,
) -> Result<Begun, MoveError> {
    let is_same = arriving.fetched()?.digest == parts.digest.to_string();
    let is_cut_off = matches!(arriving.arrived()?, Arrived::CutOff(_));
    if !(is_same && is_cut_off) {
        return Err(MoveError::There(into.to_owned()));
    }
    let in_use = in_use::hold(into).map_err(MoveError::refused)?;
    let fetching = Fetching::begin(into, &fetched(parts)).map_err(|error| match error {
        StoreError::Arriving { .. } => MoveError::Busy(into.to_owned()),
        other => other.into(),
    })?;
    begin_packs(settings, parts, into)?;
    let image = std::path::absolute(into).map_err(MoveError::io("find", into))?;
    Ok((image, fetching, in_use))
}

fn fetched(parts: &Parts) -> Fetched {
    Fetched {
        reference: parts.reference.to_string(),
        digest: parts.digest.to_string(),
    }
}

/// Verifies all files but packs, and makes the packs.
fn begin_packs(settings: &Settings, parts: &Parts, image: &Path) -> Result<(), MoveError> {
    let others = parts.files.iter().filter(|file| !is_pack_name(&file.name));
    let others: Vec<_> = others.cloned().collect();
    let threads = settings.gpu_contents.threads_on_disk();
    files::verify(image, &others, threads).map_err(MoveError::refused)?;
    let mut packs = parts.packs.iter();
    packs.try_for_each(|(pack, _)| begin(&image.join(pack.file_name()), pack).map(drop))
}
