//! The process that pulls an image for a new container (`restore::at_create`), and goes on if that
//! has ended.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use stasis_config::Settings;
use stasis_linux::directory::Directory;
use stasis_oci_image::Reference;

use super::kept::keep_last;
use super::pull::pull_manifest;
use super::staging;
use crate::cli::command_error::MoveError;
use crate::error::chain;
use crate::host::respawn::say;
use crate::image::directory::has_inventory;
use crate::image::directory::in_use::{self, InUse};
use crate::restore::at_create::pulled::{Answer, Pull, place_of};

/// How often it is looked whether somebody else has pulled it, and how much there is.
const LOOK: Duration = Duration::from_millis(20);
const TELL: Duration = Duration::from_millis(500);

impl Pull {
    /// Pulls the image and says where it is; `false`: there is none.
    ///
    /// Who asked may have gone: then nobody hears of it, and the image is there for the next one.
    #[must_use]
    pub fn run(&self) -> bool {
        let pulled = self.pull();
        let _ = match &pulled {
            Ok((image, _)) => say(&Answer::There(image.clone())),
            Err(error) => say(&Answer::Failed {
                kind: error.kind().name().to_owned(),
                why: chain(error),
            }),
        };
        if pulled.is_err() {
            return false;
        }
        // Until it is in use by whoever has asked.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(pulled);
        keep_last(&self.below, self.keep, &self.state_dir);
        true
    }

    fn pull(&self) -> Result<(PathBuf, InUse), MoveError> {
        let reference: Reference = self.reference.parse()?;
        let from = reference.open(None)?;
        let (manifest, digest) = from.manifest(reference.tag())?;
        Directory::make(&self.below, 0o700).map_err(MoveError::io("make", &self.below))?;
        let image = place_of(&self.below, &digest.hex());
        tell_size(staging::path_of(&image)?);
        let mut settings = Settings::default();
        settings.bulk_memory.threads = self.threads;
        loop {
            if has_inventory(&image) {
                let in_use = in_use::hold(&image).map_err(MoveError::refused)?;
                has_been_used(&image);
                return Ok((image, in_use));
            }
            let found = (&manifest, &digest);
            match pull_manifest(&settings, &*from, &reference, found, &image) {
                Ok(_) => {}
                // Somebody else pulls it.
                Err(MoveError::Busy(_)) => sleep(LOOK),
                // It was there right after we looked.
                Err(MoveError::There(_)) if has_inventory(&image) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Says again and again how much there is in a directory that may not be there yet, whoever fills
/// it.
fn tell_size(directory: PathBuf) {
    thread::spawn(move || {
        while say(&Answer::Coming(size_of(&directory))).is_ok() {
            sleep(TELL);
        }
    });
}

fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    sizes.fold(0, u64::saturating_add)
}

/// Those that were used last are kept.
fn has_been_used(image: &Path) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    // Only the order in which images go could be another one.
    let _ = utimensat(CWD, image, &times, AtFlags::empty());
}
