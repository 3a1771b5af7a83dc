//! Users of an image: an operation that is recorded, a process that has it open or has its contents
//! mapped, or another image that refers to it.

use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::image::directory::PARENT;
use stasis_engine::operation::awaited_start::AwaitedStart;
use stasis_engine::operation::undo::{Begun, Undo};
use stasis_linux::procfs::{descriptors, for_each_mapping, processes};

use super::found::Image;
use crate::command_error::CommandError;

/// The paths in use, each with its user.
#[derive(Debug)]
pub(super) struct Users(Vec<(PathBuf, String)>);

impl Users {
    /// Looks once at all processes: an operation that begins later holds the image's directory.
    pub(super) fn of(settings: &Settings, images: &[Image]) -> Result<Self, CommandError> {
        let state_dir = &settings.paths.state_dir;
        let recorded = Undo::all(state_dir).map_err(CommandError::Recover)?;
        let mut used: Vec<_> = recorded.into_iter().filter_map(of_checkpoint).collect();
        let awaited = AwaitedStart::all(state_dir).map_err(CommandError::Recover)?;
        used.extend(awaited.into_iter().map(of_created));
        used.extend(images.iter().filter_map(of_parent));
        let places: Vec<&Path> = images.iter().flat_map(places).collect();
        for pid in processes().map_err(CommandError::Recover)? {
            for_each_path(pid, |path| {
                if places.iter().any(|place| path.starts_with(place)) {
                    used.push((path.to_owned(), format!("process {pid} uses it")));
                }
            });
        }
        Ok(Self(used))
    }

    /// Returns the user of an image.
    pub(super) fn user_of(&self, image: &Image) -> Option<&str> {
        let mut used = self.0.iter();
        let found = used.find(|(path, _)| places(image).any(|place| path.starts_with(place)));
        found.map(|(_, user)| user.as_str())
    }
}

/// Returns the directories of an image, and of the contents stored for it.
fn places(image: &Image) -> impl Iterator<Item = &Path> {
    let stored = image.apart.iter().map(|apart| &apart.directory);
    stored.chain([&image.directory]).map(PathBuf::as_path)
}

/// Protects the image of a killed checkpoint, which is finished or undone with what it has written.
fn of_checkpoint(undo: Undo) -> Option<(PathBuf, String)> {
    match undo.begun {
        Begun::Checkpoint {
            image: Some(place), ..
        } => {
            let directory = fs::canonicalize(place).ok()?;
            let user = format!("a checkpoint of container {} is not over", undo.id);
            Some((directory, user))
        }
        _ => None,
    }
}

/// Protects the image of a created container, which gets its GPU contents when it is started.
fn of_created((id, awaited): (String, AwaitedStart)) -> (PathBuf, String) {
    let user = format!("container {id} was created from it, and is not started yet");
    (awaited.image, user)
}

fn of_parent(image: &Image) -> Option<(PathBuf, String)> {
    let parent = fs::canonicalize(image.directory.join(PARENT)).ok()?;
    let user = format!("the image in {} refers to it", image.directory.display());
    Some((parent, user))
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
