//! Images of a registry, which a new container names: they are pulled by a process of its own, and
//! found here.
//!
//! That process looks up the digest of the tag, and puts the image where images of this digest are.
//! So many containers that name the same image at once fetch it once: the others wait until it is
//! there. It goes on if the one who asked has gone.

use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_oci_image::Reference;

use crate::container::pod::namespace_of;
use crate::container::spec::Spec;
use crate::error::first_image::NoFirstImage;
use crate::error::kind::Kind;
use crate::host::cancel::Cancel;
use crate::image::directory::in_use::{self, InUse};
use crate::restore::admission::described::Described;
use crate::restore::admission::node::Whose;
use crate::restore::at_create::pull_process::{Into, NotPulled, Process, Pull};

/// Below the directory of images for new containers. No container can name it: it begins with a
/// dot.
const DIRECTORY: &str = ".pulled";

/// An image that is here.
#[derive(Debug)]
pub(super) struct Pulled {
    pub(super) image: PathBuf,
    /// Nobody removes it meanwhile.
    pub(super) _in_use: InUse,
}

/// Where the images of a registry are that new containers may begin with.
pub(super) fn directory(settings: &Settings) -> PathBuf {
    settings.restore.at_create.join(DIRECTORY)
}

/// Finds the image of a registry that the container of this specification names; pulls it, if it is
/// not here. Gives up if nothing of it comes for `deadlines.stalled_s`.
///
/// # Errors
/// [`NoFirstImage`].
pub(super) fn pulled(
    settings: &Settings,
    cancel: &Cancel,
    spec: &Spec,
    asked: &Reference,
) -> Result<Pulled, NoFirstImage> {
    let reference = allowed(&settings.restore.registry, spec, asked)?;
    let failed = |kind, why: String| NoFirstImage::Pull {
        reference: reference.clone(),
        kind,
        why,
    };
    let io_failed = |error: std::io::Error| failed(Kind::Io, error.to_string());
    let pull = Pull {
        reference: reference.clone(),
        authfile: None,
        into: Into::Kept {
            below: directory(settings),
            keep: settings.restore.keep_pulled,
            state_dir: settings.paths.state_dir.clone(),
        },
        threads: settings.gpu_contents.threads_on_disk(),
        stalled: settings.deadlines.stalled(),
    };
    let mut process = Process::start(&pull).map_err(io_failed)?;
    let fits = |image: &Described| image.check(settings, Whose::Its(spec));
    let image = process.image(pull.stalled, cancel, &fits);
    let image = image.map_err(|NotPulled { kind, why }| failed(kind, why))?;
    let in_use = in_use::hold(&image);
    let in_use = in_use.map_err(|error| failed(error.kind(), error.to_string()))?;
    Ok(Pulled {
        image,
        _in_use: in_use,
    })
}

/// The whole name of the image, if this container may name it.
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
        // How it is reached is the settings' to say.
        true => Ok(format!("{scheme}{name}")),
        false => Err(NoFirstImage::OtherRegistry { given, allowed }),
    }
}

fn split_scheme(text: &str) -> (&str, &str) {
    let after = text.find("://").map_or(0, |at| at + "://".len());
    text.split_at(after)
}

/// The directory of an image with this digest.
pub(crate) fn place_of(below: &Path, hex: &str) -> PathBuf {
    below.join(format!("sha256-{hex}"))
}

#[cfg(test)]
mod tests;
