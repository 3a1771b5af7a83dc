//! Users of an image: an operation that is recorded, a process that has it open or has its contents
//! mapped, or another image that refers to it.

use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::image::directory::PARENT;
use stasis_engine::image::recorded::{Needed, needed, user_of};
use stasis_linux::procfs::{descriptors, for_each_mapping, processes};

use super::found::Image;
use crate::command_error::CommandError;

/// The paths in use, each with its user.
#[derive(Debug)]
pub(super) struct Users(Vec<Needed>);

impl Users {
    /// Looks once at all processes: an operation that begins later holds the image's directory.
    pub(super) fn of(settings: &Settings, images: &[Image]) -> Result<Self, CommandError> {
        let state_dir = &settings.paths.state_dir;
        let mut used = needed(state_dir).map_err(CommandError::Recover)?;
        used.extend(images.iter().filter_map(of_parent));
        let places: Vec<&Path> = images.iter().flat_map(places).collect();
        for pid in processes().map_err(CommandError::Recover)? {
            for_each_path(pid, |path| {
                if places.iter().any(|place| path.starts_with(place)) {
                    used.push(Needed {
                        directory: path.to_owned(),
                        user: format!("process {pid} uses it"),
                    });
                }
            });
        }
        Ok(Self(used))
    }

    /// Returns the user of an image.
    pub(super) fn user_of(&self, image: &Image) -> Option<&str> {
        places(image).find_map(|place| self.user_at(place))
    }

    /// Returns the user of something in a directory.
    pub(super) fn user_at(&self, directory: &Path) -> Option<&str> {
        user_of(&self.0, directory)
    }
}

/// Returns the directories of an image, and of the contents stored for it.
fn places(image: &Image) -> impl Iterator<Item = &Path> {
    let stored = image.apart.iter().map(|apart| &apart.directory);
    stored.chain([&image.directory]).map(PathBuf::as_path)
}

fn of_parent(image: &Image) -> Option<Needed> {
    Some(Needed {
        directory: fs::canonicalize(image.directory.join(PARENT)).ok()?,
        user: format!("the image in {} refers to it", image.directory.display()),
    })
}

/// Visits the paths that a process has open or mapped; a process that ends meanwhile uses nothing.
fn for_each_path(pid: i32, mut visit: impl FnMut(&Path)) {
    for open in descriptors(pid).into_iter().flatten() {
        visit(Path::new(OsStr::from_bytes(open.target())));
    }
    let _ = for_each_mapping::<()>(pid, |mapping| {
        visit(Path::new(OsStr::from_bytes(mapping.path)));
        ControlFlow::Continue(())
    });
}
