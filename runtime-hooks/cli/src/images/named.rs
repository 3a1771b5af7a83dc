//! The user's name for an image on this machine: its directory, an engine's archive, or the
//! container whose last image is meant.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::image::manifest::Manifest;

use super::known::with_dockers;
use super::transfer::unpacked::Unpacked;
use crate::command_error::CommandError;
use crate::whose::Whose;

/// An image on this machine, as long as this lives.
#[derive(Debug)]
pub(super) struct Named {
    /// Its directory, which may not exist.
    pub(super) directory: PathBuf,
    /// The archive, if the user named one.
    pub(super) archive: Option<PathBuf>,
    /// The unpacked files, removed with this.
    _unpacked: Option<Unpacked>,
}

impl Named {
    /// Finds the image; an archive is unpacked beside itself. A name that is no file, and no
    /// container's with an image, is taken for a directory.
    ///
    /// # Errors
    /// The archive cannot be unpacked, or the images of this machine cannot be listed.
    pub(super) fn find(settings: &Settings, named: &Path) -> Result<Self, CommandError> {
        if named.is_file() {
            let unpacked = Unpacked::of(named)?;
            return Ok(Self {
                directory: unpacked.image(),
                archive: Some(named.to_owned()),
                _unpacked: Some(unpacked),
            });
        }
        let last = match named.exists() || named.file_name() != Some(named.as_os_str()) {
            true => None,
            false => last_of(settings, named.as_os_str())?,
        };
        Ok(Self::directory(last.as_deref().unwrap_or(named)))
    }

    /// Names the image in a directory.
    pub(super) fn directory(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            archive: None,
            _unpacked: None,
        }
    }
}

/// Finds the last image of the container of this name or id that a checkpoint here has made.
fn last_of(settings: &Settings, container: &OsStr) -> Result<Option<PathBuf>, CommandError> {
    let images = with_dockers(settings)?;
    let is_its = |image: &&PathBuf| {
        let manifest = Manifest::read(image).ok().flatten();
        let whose = Whose::of(
            image,
            manifest.as_ref().map(|manifest| &*manifest.container),
        );
        let names = [whose.id, whose.known.name];
        names
            .iter()
            .flatten()
            .any(|name| container == OsStr::new(name))
    };
    Ok(images.iter().rev().find(is_its).cloned())
}
