//! Containers that are saved when they are stopped, the next of which goes on: the settings for
//! that, and a check of whether they were saved.

use anyhow::{Result, ensure};

use crate::client::answer::listed;
use crate::host::installed::{PROGRAM, StasisHost};

/// The settings.
pub const SETTINGS: &str = "restore.at_create = \"/images\"\nrestore.keep_at_stop = 2\n";
/// The annotations; the images are in [`IMAGES`].
pub const ANNOTATIONS: [(&str, &str); 3] = [
    ("io.stasis.checkpoint", "on-stop"),
    ("io.stasis.checkpoint.key", "saved"),
    ("io.stasis.restore", "latest:saved"),
];
/// The directory of the images, of a container in no pod.
pub const IMAGES: &str = "/images/saved";

/// Returns the annotations as options of engines.
#[must_use]
pub fn options() -> [String; 3] {
    ANNOTATIONS.map(|(name, value)| format!("--annotation={name}={value}"))
}

impl StasisHost {
    /// Whether the last container that was stopped was saved, and `kept` images are in `images`.
    pub fn was_saved_at_stop(&self, images: &str, kept: usize) -> Result<()> {
        self.nobody_is_stopped()?;
        let stopped = self.operation("stop")?;
        ensure!(stopped["notes"].is_null(), "{stopped}");
        let found = self.run_for_text(&["ls", images])?;
        ensure!(found.lines().count() == kept, "{kept}, and not {found}");
        Ok(())
    }

    /// Whether `stasis verify` calls all images of stops in `images` whole.
    pub fn has_whole_images(&self, images: &str) -> Result<()> {
        let verify = format!("exec {PROGRAM} verify --json {images}/*-stop");
        let rows = self.run_for_text(&["sh", "-c", &verify])?;
        for row in listed(rows.as_bytes())? {
            ensure!(row["restorable"] == true, "{row}");
        }
        Ok(())
    }
}
