//! The user's name for an image on this machine: its directory, an engine's archive, or the
//! container whose last image is meant.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::image::manifest::Manifest;
use stasis_locate::whose::Whose;
use stasis_transfer::Unpacked;

use super::known::with_dockers;
use crate::command_error::{CommandError, ImageError};

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
    /// Finds the image; an archive is unpacked beside itself. A path to nothing is taken for a
    /// directory, which has no image.
    ///
    /// # Errors
    /// The archive cannot be unpacked, the images of this machine cannot be listed, or no container
    /// with an image has the name.
    pub(super) fn find(settings: &Settings, named: &Path) -> Result<Self, CommandError> {
        if named.is_file() {
            let unpacked = Unpacked::of(named)?;
            return Ok(Self {
                directory: unpacked.image(),
                archive: Some(named.to_owned()),
                _unpacked: Some(unpacked),
            });
        }
        if named.exists() || named.file_name() != Some(named.as_os_str()) {
            return Ok(Self::directory(named));
        }
        let last = last_of(settings, named.as_os_str())?;
        let unknown = || ImageError::Unknown(named.display().to_string());
        Ok(Self::directory(&last.ok_or_else(unknown)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_an_error_and_a_path_is_looked_at() {
        let logs = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.paths.log_dir = logs.path().to_owned();
        let error = Named::find(&settings, Path::new("nobody-has-this")).unwrap_err();
        let says = "no container with an image called nobody-has-this";
        assert!(error.to_string().ends_with(says), "{error}");
        let found = Named::find(&settings, Path::new("/nowhere/job")).unwrap();
        assert_eq!(found.directory, Path::new("/nowhere/job"));
    }
}
