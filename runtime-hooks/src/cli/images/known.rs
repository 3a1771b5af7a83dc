//! Where this machine has images: engines keep them where they like, so it is known of those that
//! checkpoints on this machine wrote, as long as they are there, and of those that Docker keeps
//! with its containers, which are Docker's to remove.

use std::fs;
use std::path::{Path, PathBuf};

use stasis_config::Settings;

use crate::bulk_memory::apart;
use crate::bulk_memory::places::Places;
use crate::cli::command_error::CommandError;
use crate::cli::log::line::read;
use crate::image::manifest::FILE_NAME;

/// Where Docker has its containers, with `checkpoints/NAME` in the directory of each: containerd
/// writes the image elsewhere, and Docker has it moved.
const OF_DOCKER: &str = "/var/lib/docker/containers";

/// The directories in which an image is, those of the oldest checkpoints first.
pub(super) fn directories(settings: &Settings) -> Result<Vec<PathBuf>, CommandError> {
    let mut found = logged(settings)?;
    for apart in apart::all(&Places::of(settings))? {
        let path = apart
            .image_path
            .filter(|path| path.join(FILE_NAME).is_file());
        found.extend(path.filter(|path| !found.contains(path)));
    }
    Ok(found)
}

/// Those that the log names, in the order of its lines, whatever the clock said then.
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
        // It has taken the place of the earlier one.
        earlier.map(|at| found.remove(at));
        found.push(path);
    })
    .map_err(CommandError::Log)?;
    Ok(found)
}

/// These, and those of Docker.
pub(super) fn with_dockers(settings: &Settings) -> Result<Vec<PathBuf>, CommandError> {
    let mut found = directories(settings)?;
    for container in entries(Path::new(OF_DOCKER)) {
        let images = container.join("checkpoints");
        let images = entries(&images);
        found.extend(images.filter(|path| path.join(FILE_NAME).is_file()));
    }
    Ok(found)
}

/// What is in a directory; nothing of one that is not there.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
