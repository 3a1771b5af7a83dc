//! The files of a container's `/dev/shm` that its image carries: they are put into the directory of
//! the new container's engine before CRIU opens them.

use std::io;
use std::path::PathBuf;

use crate::container::shared_memory::{directory, is_empty};
use crate::container::spec::Spec;
use crate::error::{Failure, Refusal};
use crate::image::manifest::Manifest;
use crate::image::shared_memory;
use crate::request::RestoreRequest;

/// Files that are to be put back.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    image: PathBuf,
    /// Nothing is in it.
    directory: PathBuf,
}

impl SharedMemory {
    /// `None` if the image has none, or the engine has put its own copy there.
    ///
    /// # Errors
    /// [`Refusal::Directory`]: there is no place for them.
    pub(crate) fn of(
        manifest: &Manifest,
        options: &RestoreRequest,
    ) -> Result<Option<Self>, Refusal> {
        if !manifest.has_shared_memory() {
            return Ok(None);
        }
        let bundle = &options.bundle;
        let found = Spec::read(bundle).ok().and_then(|spec| directory(&spec));
        let found = found.ok_or_else(|| {
            let what = "its engine has mounted no /dev/shm that is the container's own";
            refused(bundle.clone())(io::Error::other(what))
        })?;
        let is_empty = is_empty(&found).map_err(refused(found.clone()))?;
        Ok(is_empty.then(|| Self {
            image: options.image_path.clone(),
            directory: found,
        }))
    }

    /// Puts them back.
    pub(crate) fn load(&self) -> Result<(), Failure> {
        let loaded = shared_memory::load(&self.image, &self.directory);
        Ok(loaded.map_err(refused(self.directory.clone()))?)
    }

    /// Removes them: a container that is started cold must not find them.
    pub(crate) fn clear(&self) {
        // The engine unmounts what cannot be removed.
        let _ = shared_memory::clear(&self.directory);
    }
}

fn refused(path: PathBuf) -> impl FnOnce(io::Error) -> Refusal {
    let what = "the new container's /dev/shm for the files of the image, in";
    |source| Refusal::Directory { what, path, source }
}
