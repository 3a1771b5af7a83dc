//! Finds and checks the image of a restore before anything is started.

use std::path::Path;

use stasis_config::Settings;
use stasis_linux::access_list;
use stasis_memory_store::{ARRIVING_FILE, is_pack_name};

use crate::bulk_memory::dump::has_index;
use crate::container::criu_configuration;
use crate::container::spec::Spec;
use crate::error::{Failure, Refusal};
use crate::image::allowed::{NotAllowed, admit};
use crate::image::directory::{INVENTORY, Opened, has_inventory, open};
use crate::image::files::{self, FileError};
use crate::image::manifest::{FILE_NAME, Manifest};
use crate::image::work_directory;
use crate::request::RestoreRequest;

/// The kind of image in a directory.
#[derive(Debug)]
pub enum ImageKind {
    /// An image that only stasis can restore.
    Image(Box<Manifest>),
    /// An image without GPU state and bulk memory: the low-level runtime restores it.
    Plain,
    /// No image.
    Nothing,
}

/// Opens the image of a restore, if it may be restored in this container. Returns the request with
/// the path of its files.
pub(crate) fn opened(
    settings: &Settings,
    options: &RestoreRequest,
) -> Result<(RestoreRequest, Opened), Refusal> {
    criu_configuration::refuse_new(settings, &options.bundle)?;
    let allowed = &settings.restore.images;
    let opened = open(settings, &admit(allowed, &options.image_path)?)?;
    let options = RestoreRequest {
        // Files that were not checked before may have been moved up.
        image_path: admit(allowed, opened.path())?,
        ..options.clone()
    };
    Ok((options, opened))
}

/// Looks for the image of a restore.
pub(crate) fn find_for(
    settings: &Settings,
    options: &RestoreRequest,
) -> Result<ImageKind, Refusal> {
    let (allowed, directory) = (&settings.restore.images, &options.image_path);
    files::refuse_no_files(directory)?;
    work_directory::check_for_restore(options.work())?;
    match find(directory)? {
        ImageKind::Nothing if !allowed.is_empty() => Err(NotAllowed::NoImage {
            image: directory.clone(),
        }
        .into()),
        ImageKind::Nothing => Ok(ImageKind::Nothing),
        found => {
            let_in(options)?;
            Ok(found)
        }
    }
}

/// Lets the root of the new container's user namespace search the image's directory, and read
/// CRIU's files in it: CRIU opens them from within (criu/namespaces.c), and the checkpoint's caller
/// may have had a mask that makes them unreadable. That user reaches them only through CRIU's
/// descriptor, as far as the directories above keep others out.
pub(crate) fn let_in(options: &RestoreRequest) -> Result<(), Refusal> {
    // The low-level runtime reports a specification that cannot be read.
    let spec = Spec::read(&options.bundle).ok();
    let Some(uid) = spec.and_then(|spec| spec.root_of_user_namespace()) else {
        return Ok(());
    };
    let image = &options.image_path;
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| Refusal::UserNamespace { path, uid, source }
    };
    access_list::give_search(image, uid).map_err(refused(image))?;
    for path in files::of_criu(image)? {
        access_list::give_read(&path, uid).map_err(refused(&path))?;
    }
    Ok(())
}

/// Looks for an image.
///
/// # Errors
/// [`Refusal`]; also for memory that is not in CRIU's own files, without the manifest.
pub fn find(directory: &Path) -> Result<ImageKind, Refusal> {
    Ok(match Manifest::read(directory)? {
        Some(manifest) => ImageKind::Image(Box::new(manifest)),
        None if has_inventory(directory) && has_index(directory) => {
            let path = directory.join(FILE_NAME);
            return Err(FileError::Missing { path }.into());
        }
        None if has_inventory(directory) => ImageKind::Plain,
        None => ImageKind::Nothing,
    })
}

/// After CRIU has read the image: refuses one that was exchanged in its directory meanwhile.
pub(crate) fn refuse_exchanged(directory: &Path, manifest: &Manifest) -> Result<(), Failure> {
    let now = Manifest::read(directory)?;
    if now.unwrap_or_else(|| Manifest::implied(&manifest.container)) == *manifest {
        return Ok(());
    }
    let path = directory.to_owned();
    Err(FileError::Exchanged { path }.into())
}

/// Returns whether parts of an image have not arrived yet.
fn is_arriving(directory: &Path) -> bool {
    directory.join(ARRIVING_FILE).symlink_metadata().is_ok()
}

/// Verifies its files before CRIU: restored processes run before stasis checks them again. An image
/// whose checkpoint was interrupted lists none.
pub fn verify(settings: &Settings, directory: &Path, manifest: &Manifest) -> Result<(), FileError> {
    match &manifest.files {
        Some(listed) if is_arriving(directory) => {
            // Readers of packs wait for them, and compare them with the index.
            let others = listed.iter().filter(|file| !is_pack_name(&file.name));
            let others: Vec<_> = others.cloned().collect();
            files::verify(directory, &others, settings.gpu_contents.threads_on_disk())
        }
        Some(listed) => files::verify(directory, listed, settings.gpu_contents.threads_on_disk()),
        None if has_inventory(directory) => Ok(()),
        None => Err(FileError::Missing {
            path: directory.join(INVENTORY),
        }),
    }
}
