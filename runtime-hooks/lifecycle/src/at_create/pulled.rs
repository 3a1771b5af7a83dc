//! Images of a registry, which a new container names: they are pulled by a process of its own, and
//! found here.
//!
//! The process looks up the digest of the tag, and puts the image into the directory of this
//! digest. So many containers that name the same image at once fetch it once: the others wait until
//! it is complete. The process goes on if its starter has ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_host::cancel::Cancel;
use stasis_linux::file;
use stasis_memory_store::{Arrived, Arriving, Fetched};
use stasis_oci_image::{Digest, Reference};

use crate::at_create::no_first_image::NoFirstImage;
use crate::at_create::pull_process::{Into, NotPulled, Process, Pull};
use crate::pod::namespace_of;
use stasis_engine::container::spec::Spec;
use stasis_engine::context::Context;
use stasis_engine::error::Refusal;
use stasis_engine::error::kind::Kind;
use stasis_engine::image::directory::INVENTORY;
use stasis_engine::image::directory::in_use::hold_alone;
use stasis_engine::operation::awaited_start::AwaitedStart;
use stasis_engine::restore::admission::described::{Described, Unfit};
use stasis_engine::restore::admission::node::Whose;

/// A directory below that of images for new containers. No container can name it: it begins with a
/// dot.
pub(super) const DIRECTORY: &str = ".pulled";
/// The end of the name of the directory in which a pulled image grows, which begins with a dot.
pub const GROWING: &str = ".stasis-pull";

/// Returns the directory of the registry's images with which new containers may begin.
pub(super) fn directory(settings: &Settings) -> PathBuf {
    settings.restore.at_create.join(DIRECTORY)
}

/// Finds the registry's image that the container of this specification names; pulls it, if it is
/// not here. The image is not removed as long as the process is held.
pub(super) fn pulled(
    settings: &Settings,
    cancel: &Cancel,
    spec: &Spec,
    asked: &Reference,
) -> Result<(Process, PathBuf), NoFirstImage> {
    let reference = allowed(&settings.restore.registry, spec, asked)?;
    let fits = |image: &Described| image.check(settings, Whose::Its(spec));
    pull(settings, cancel, &reference, directory(settings), &fits)
}

/// Has a process pull the rest of an image, if the process that a `create` has started was killed
/// or has given up. An image in a directory of the user's own is the user's to pull.
pub(super) fn pull_on(context: &Context, image: &Path) -> Result<(), Refusal> {
    let Some(arriving) = Arriving::find(image)? else {
        return Ok(());
    };
    let Fetched { reference, digest } = arriving.fetched()?;
    let (Ok(digest), Some(below)) = (digest.parse::<Digest>(), image.parent()) else {
        return Ok(());
    };
    let is_cut_off = matches!(arriving.arrived()?, Arrived::CutOff(_));
    if !is_cut_off || place_of(below, &digest.hex()) != image {
        return Ok(());
    }
    let named = reference.parse::<Reference>();
    let named = named.map_err(|error| NoFirstImage::Pull {
        reference,
        kind: Kind::ImageDamaged,
        why: error.to_string(),
    })?;
    // The tag may have moved to another image.
    let named = named.by_digest(&digest).to_string();
    let (settings, below) = (&context.settings, below.to_owned());
    pull(settings, &context.cancel, &named, below, &|_| Ok(()))?;
    Ok(())
}

/// Has a process pull an image into the directory of its digest, and returns when a restore can
/// begin. Gives up if no data comes for `deadlines.stalled_s`.
fn pull(
    settings: &Settings,
    cancel: &Cancel,
    reference: &str,
    below: PathBuf,
    fits: &dyn Fn(&Described) -> Result<(), Unfit>,
) -> Result<(Process, PathBuf), NoFirstImage> {
    let pull = Pull::new(settings, reference.to_owned(), Into::KeptBelow(below));
    let failed = |kind, why| NoFirstImage::Pull {
        reference: reference.to_owned(),
        kind,
        why,
    };
    let started = Process::start(&pull);
    let mut process = started.map_err(|error| failed(Kind::Io, error.to_string()))?;
    let image = process.image(settings.deadlines.stalled(), cancel, fits);
    let image = image.map_err(|NotPulled { kind, why }| failed(kind, why))?;
    Ok((process, image))
}

/// Returns the whole name of the image, if this container may name it.
fn allowed(registry: &str, spec: &Spec, asked: &Reference) -> Result<String, NoFirstImage> {
    if registry.is_empty() {
        return Err(NoFirstImage::NoRegistry);
    }
    let (scheme, place) = split_scheme(registry);
    let mut allowed = format!("{place}/");
    if let Some(namespace) = namespace_of(spec)? {
        allowed.push_str(namespace);
        allowed.push('/');
    }
    let given = asked.to_string();
    let (_, name) = split_scheme(&given);
    match name.starts_with(&allowed) {
        // The settings decide how it is reached.
        true => Ok(format!("{scheme}{name}")),
        false => Err(NoFirstImage::OtherRegistry { given, allowed }),
    }
}

fn split_scheme(text: &str) -> (&str, &str) {
    let after = text.find("://").map_or(0, |at| at + "://".len());
    text.split_at(after)
}

/// Removes a damaged image, if it was pulled and no other container uses it: a pull leaves whole
/// images alone.
pub(super) fn remove_damaged(context: &Context, image: &Path) {
    let (Ok(below), Ok(awaited)) = (
        fs::canonicalize(directory(&context.settings)),
        AwaitedStart::all(&context.settings.paths.state_dir),
    ) else {
        return;
    };
    let is_used = awaited.iter().any(|(_, start)| start.image == image);
    if image.parent() == Some(&below)
        && !is_used
        && let Ok(Some(_alone)) = hold_alone(image)
    {
        let _ = remove(image);
    }
}

/// Removes a pulled image, which has files alone. It first gets the name under which it grew, and
/// then loses its inventory, so that it looks incomplete: if the rest is cut off, the next pull
/// resumes it.
pub fn remove(directory: &Path) -> io::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let going = match name.starts_with('.') {
        true => directory.to_owned(),
        false => directory.with_file_name(format!(".{name}{GROWING}")),
    };
    fs::rename(directory, &going)?;
    file::remove(&going.join(INVENTORY))?;
    for entry in fs::read_dir(&going)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(&going)
}

/// The directory of an image with this digest.
pub fn place_of(below: &Path, hex: &str) -> PathBuf {
    below.join(format!("sha256-{hex}"))
}

#[cfg(test)]
mod tests;
