//! The images that this machine knows. Engines keep images where they like, so it knows the images
//! that checkpoints on this machine wrote, as long as they exist, and the images that Docker keeps
//! with its containers, which are Docker's to remove.

use std::fs;
use std::path::{Path, PathBuf};

use stasis_config::Settings;
use stasis_engine::bulk_memory::apart;
use stasis_engine::image::manifest::FILE_NAME;

use crate::command_error::CommandError;
use crate::log::line::read;

/// Docker's containers, with `checkpoints/NAME` in the directory of each: containerd writes the
/// image elsewhere, and Docker has it moved.
const OF_DOCKER: &str = "/var/lib/docker/containers";

/// Finds the directories that have an image, in the order of their checkpoints, the oldest first.
pub(super) fn directories(settings: &Settings) -> Result<Vec<PathBuf>, CommandError> {
    let mut found = logged(settings)?;
    for apart in apart::all(settings)? {
        let path = apart
            .image_path
            .filter(|path| path.join(FILE_NAME).is_file());
        found.extend(path.filter(|path| !found.contains(path)));
    }
    Ok(found)
}

/// Finds the images that the log names, in the order of its lines, whatever the clock was then.
pub(super) fn logged(settings: &Settings) -> Result<Vec<PathBuf>, CommandError> {
    let mut found: Vec<PathBuf> = Vec::new();
    read(&settings.paths.log_dir, |line| {
        let has_failed = line.has_failed();
        let path = line.image_path.filter(|_| line.operation == "checkpoint");
        let Some(path) = path.filter(|path| path.join(FILE_NAME).is_file()) else {
            return;
        };
        let earlier = found.iter().position(|earlier| *earlier == path);
        if has_failed && earlier.is_some() {
            return;
        }
        // The image has taken the place of the earlier one.
        earlier.map(|at| found.remove(at));
        found.push(path);
    })
    .map_err(CommandError::Log)?;
    Ok(found)
}

/// Finds these, and Docker's.
pub(super) fn with_dockers(settings: &Settings) -> Result<Vec<PathBuf>, CommandError> {
    let mut found = directories(settings)?;
    for container in entries(Path::new(OF_DOCKER)) {
        let images = container.join("checkpoints");
        let images = entries(&images);
        found.extend(images.filter(|path| path.join(FILE_NAME).is_file()));
    }
    Ok(found)
}

/// Lists a directory; nothing if it does not exist.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
