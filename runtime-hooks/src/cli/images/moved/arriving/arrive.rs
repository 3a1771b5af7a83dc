//! An image that can be restored while it arrives: all but its bulk memory is fetched first, and
//! then the directory has its name, with packs that grow.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_linux::file;
use stasis_memory_store::{
    Arrived, Arriving, FetchEnd, Fetched, Fetching, INDEX_FILE, Index, Pack, StoreError,
    is_pack_name, pack_header,
};
use stasis_oci_image::{Descriptor, Digest, Elsewhere, Manifest, Reference};

use super::super::pull::of_criu::fetch_criu;
use super::super::pull::parts::Parts;
use super::super::report::Moved;
use super::super::staging::Staging;
use super::side_by_side::{Blobs, Found, Source, fetch_all};
use crate::cli::command_error::MoveError;
use crate::error::chain;
use crate::image::directory::in_use::{self, InUse};
use crate::image::files::{self, ImageFile};
use crate::image::manifest::FILE_NAME;

/// An image whose bulk memory is still to come.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) image: PathBuf,
    packs: Vec<(Pack, Descriptor)>,
    fetching: Fetching,
    /// Nobody removes it meanwhile.
    _in_use: InUse,
}

/// What it is called, and its manifest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'n> {
    pub(super) reference: &'n Reference,
    pub(super) manifest: &'n Manifest,
    pub(super) digest: &'n Digest,
}

impl Coming {
    /// Fetches what a restore needs to begin, into a directory that is not there yet or empty; or
    /// goes on with one in which the same image has arrived in part.
    ///
    /// # Errors
    /// [`MoveError`]; [`MoveError::Busy`]: somebody else does so now, [`MoveError::There`]: an
    /// image is there, or the rest of another one.
    pub(super) fn begin(
        settings: &Settings,
        from: &dyn Elsewhere,
        mut parts: Parts,
        named: Named<'_>,
        into: &Path,
    ) -> Result<Self, MoveError> {
        from.expect(named.manifest)?;
        in_order_of_need(&mut parts)?;
        match Arriving::find(into)? {
            Some(arriving) => Self::go_on(settings, &arriving, parts, named, into),
            None => Self::begin_anew(settings, from, parts, named, into),
        }
    }

    fn begin_anew(
        settings: &Settings,
        from: &dyn Elsewhere,
        parts: Parts,
        named: Named<'_>,
        into: &Path,
    ) -> Result<Self, MoveError> {
        let staging = Staging::begin(into)?;
        let names = parts.names();
        staging.keep_only(&names)?;
        let filled = || {
            fetch_criu(settings, from, &parts, &staging)?;
            if let Some(index) = &parts.index {
                staging.write(INDEX_FILE, index)?;
            }
            staging.write(FILE_NAME, &parts.config)?;
            verify_but_packs(settings, staging.path(), &parts.files)?;
            for (pack, _) in &parts.packs {
                begin_pack(staging.path(), pack)?;
            }
            Ok(Fetching::begin(staging.path(), &named.fetched())?)
        };
        let fetching = match filled() {
            Ok(fetching) => fetching,
            Err(error) => {
                staging.give_up(&names);
                return Err(error);
            }
        };
        let (image, in_use) = staging.show()?;
        Ok(Self {
            image,
            packs: parts.packs,
            fetching,
            _in_use: in_use,
        })
    }

    fn go_on(
        settings: &Settings,
        arriving: &Arriving,
        parts: Parts,
        named: Named<'_>,
        into: &Path,
    ) -> Result<Self, MoveError> {
        let is_same = arriving.fetched()?.digest == named.digest.to_string();
        let is_cut_off = matches!(arriving.arrived()?, Arrived::CutOff(_));
        if !(is_same && is_cut_off) {
            return Err(MoveError::There(into.to_owned()));
        }
        let in_use = in_use::hold(into).map_err(MoveError::refused)?;
        let fetching = Fetching::begin(into, &named.fetched()).map_err(|error| match error {
            StoreError::Arriving { .. } => MoveError::Busy(into.to_owned()),
            other => other.into(),
        })?;
        verify_but_packs(settings, into, &parts.files)?;
        for (pack, _) in &parts.packs {
            begin_pack(into, pack)?;
        }
        let image = std::path::absolute(into).map_err(MoveError::io("find", into))?;
        Ok(Self {
            image,
            packs: parts.packs,
            fetching,
            _in_use: in_use,
        })
    }

    /// Fetches the rest. However it ends, those who read the image hear of it.
    ///
    /// # Errors
    /// [`MoveError`]: the next pull into the directory goes on.
    pub(super) fn finish(self, source: Source) -> Result<Found, MoveError> {
        let image = self.image.clone();
        let blobs = Blobs {
            image: self.image,
            packs: self.packs,
        };
        let fetched = fetch_all(blobs, source).and_then(|found| {
            // Its packs are on disk, each since it was verified.
            let synced = file::sync_directory(&image);
            synced
                .map_err(MoveError::io("sync", &image))
                .map(|()| found)
        });
        let end = match &fetched {
            Ok(_) => FetchEnd::Whole,
            Err(error) => FetchEnd::Failed(chain(error)),
        };
        let said = self.fetching.end(&image, &end);
        let found = fetched?;
        said?;
        file::sync_directory(&image).map_err(MoveError::io("sync", &image))?;
        Ok(found)
    }
}

/// Whether a part of an image is in a directory, and nobody has said that it is all there.
///
/// # Errors
/// [`MoveError`]: that cannot be read.
pub(in super::super) fn has_arrived_in_part(directory: &Path) -> Result<bool, MoveError> {
    let arriving = Arriving::find(directory)?;
    Ok(match arriving {
        Some(arriving) => arriving.arrived()? != Arrived::Whole,
        None => false,
    })
}

/// Fetches the rest of an image that has arrived in part.
///
/// # Errors
/// As [`Coming::begin`] and [`Coming::finish`].
pub(in super::super) fn go_on(
    settings: &Settings,
    from: &dyn Elsewhere,
    reference: &Reference,
    authfile: Option<&Path>,
    into: &Path,
) -> Result<Moved, MoveError> {
    let (manifest, digest) = from.manifest(reference.tag())?;
    let named = Named {
        reference,
        manifest: &manifest,
        digest: &digest,
    };
    let parts = Parts::read(from, &manifest, reference)?;
    let coming = Coming::begin(settings, from, parts, named, into)?;
    let (image, blobs) = (coming.image.clone(), coming.packs.len());
    let found = coming.finish(Source {
        reference: reference.clone(),
        authfile: authfile.map(Path::to_owned),
        stalled: settings.deadlines.stalled(),
    })?;
    Ok(Moved {
        image,
        reference: reference.to_string(),
        digest: digest.to_string(),
        bytes: manifest.bytes(),
        moved_bytes: manifest.bytes() - found.bytes,
        blobs,
        moved_blobs: blobs - found.blobs,
    })
}

impl Named<'_> {
    fn fetched(&self) -> Fetched {
        Fetched {
            reference: self.reference.to_string(),
            digest: self.digest.to_string(),
        }
    }
}

/// Each blob where a restore comes to it: it reads in the order of the index.
fn in_order_of_need(parts: &mut Parts) -> Result<(), MoveError> {
    let Some(index) = parts.index.as_deref().map(Index::decode).transpose()? else {
        return Ok(());
    };
    let mut order = Vec::new();
    for chunk in index.areas().flat_map(|area| &area.chunks) {
        if order.last() != Some(&chunk.place.pack) && !order.contains(&chunk.place.pack) {
            order.push(chunk.place.pack);
        }
    }
    let number = |pack: &Pack| index.packs.iter().position(|each| each == pack);
    let place = |pack: &Pack| {
        let number = number(pack).and_then(|number| u32::try_from(number).ok());
        order.iter().position(|each| Some(*each) == number)
    };
    parts
        .packs
        .sort_by_key(|(pack, _)| place(pack).unwrap_or(usize::MAX));
    Ok(())
}

fn verify_but_packs(
    settings: &Settings,
    image: &Path,
    listed: &[ImageFile],
) -> Result<(), MoveError> {
    let others = listed.iter().filter(|file| !is_pack_name(&file.name));
    let others: Vec<_> = others.cloned().collect();
    let threads = settings.gpu_contents.threads_on_disk();
    files::verify(image, &others, threads).map_err(MoveError::refused)
}

/// Makes a pack that has nothing but its header, unless there is one. A header that was cut off is
/// written again when the pack is fetched.
fn begin_pack(image: &Path, pack: &Pack) -> Result<(), MoveError> {
    let path = image.join(pack.file_name());
    let begun = match file::create_new(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        opened => opened.and_then(|mut file| file.write_all(&pack_header(pack))),
    };
    begun.map_err(MoveError::io("make", &path))
}
