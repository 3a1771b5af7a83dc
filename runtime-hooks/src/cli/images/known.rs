//! Where this machine has images: engines keep them where they like, so it is known of those that
//! checkpoints on this machine wrote, as long as they are there.

use std::path::PathBuf;

use stasis_config::Settings;

use crate::cli::command_error::CommandError;
use crate::cli::log::line::read;
use crate::cli::memory;
use crate::image::manifest::FILE_NAME;

/// The directories in which an image is, those of the oldest checkpoints first.
pub(super) fn directories(settings: &Settings) -> Result<Vec<PathBuf>, CommandError> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        if !found.contains(&path) && path.join(FILE_NAME).is_file() {
            found.push(path);
        }
    };
    read(&settings.paths.log_dir, |line| {
        if line.operation == "checkpoint" {
            line.image_path.map(&mut add);
        }
    })
    .map_err(CommandError::Log)?;
    for kept in memory::list(settings)? {
        kept.image_path.map(&mut add);
    }
    Ok(found)
}
