//! Bulk memory that was lost: it was in memory alone when the machine restarted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stasis_config::Settings;
use stasis_linux::file;
use stasis_memory_store::{ImageId, ORIGIN_FILE};

use crate::bulk_memory::origin::Origin;
use crate::bulk_memory::stores::{self, PARTIAL, Stores};
use crate::error::kind::{Diagnosis, Kind, State};
use crate::error::operations_log::{self, Failed};
use crate::operation::timeline::Timeline;

/// The suffix of a directory whose store was lost; only its origin is there.
const LOST: &str = "lost";
/// For how long a loss is listed, unless a newer checkpoint of the container is on disk sooner.
const LISTED: Duration = Duration::from_secs(30 * 24 * 3600);

/// A store that was lost.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) image_id: ImageId,
    pub(crate) origin: Origin,
    pub(crate) directory: PathBuf,
}

/// Says in `operations.log` which checkpoints were lost by a restart of the machine, and lets go of
/// what was on disk of them. To be called by who holds the gate.
///
/// # Errors
/// The I/O error.
pub(crate) fn declare(settings: &Settings) -> io::Result<()> {
    let stores = Stores::of(settings);
    for (name, partial) in stores::names_in(&stores.disk)? {
        let Some(image_id) = id_in(&name, PARTIAL) else {
            continue;
        };
        let Some(origin) = Origin::read(&partial) else {
            continue;
        };
        // During this boot it may be in the memory that other settings name.
        if origin.is_of_this_boot() || stores.ram.join(image_id.to_string()).is_dir() {
            continue;
        }
        log(settings, image_id, &origin);
        keep_origin_alone(&partial)?;
        fs::rename(&partial, stores.disk.join(format!("{image_id}.{LOST}")))?;
        file::sync_directory(&stores.disk)?;
    }
    for lost in lost_in(&stores)? {
        let declared = lost.directory.metadata()?.modified()?;
        if declared.elapsed().is_ok_and(|ago| ago > LISTED) {
            fs::remove_dir_all(&lost.directory)?;
        }
    }
    Ok(())
}

/// What is listed as lost.
///
/// # Errors
/// The I/O error.
pub(crate) fn lost_in(stores: &Stores) -> io::Result<Vec<Lost>> {
    let names = stores::names_in(&stores.disk)?.into_iter();
    let found = names.filter_map(|(name, directory)| {
        Some(Lost {
            image_id: id_in(&name, LOST)?,
            origin: Origin::read(&directory)?,
            directory,
        })
    });
    Ok(found.collect())
}

/// Forgets what a container has lost before a checkpoint that is on disk.
pub(crate) fn forget_older(stores: &Stores, newer: &Origin) {
    for lost in lost_in(stores).unwrap_or_default() {
        let is_older = lost.origin.completed_ns < newer.completed_ns;
        if is_older && lost.origin.is_of(&newer.container, &newer.root) {
            let _ = fs::remove_dir_all(&lost.directory);
        }
    }
}

fn id_in(name: &str, suffix: &str) -> Option<ImageId> {
    let (id, found) = name.split_once('.')?;
    (found == suffix).then(|| id.parse().ok()).flatten()
}

fn log(settings: &Settings, image_id: ImageId, origin: &Origin) {
    let text = format!(
        "bulk memory {image_id} of the checkpoint of {} is lost: it was in memory alone when this \
         machine restarted; the image {} cannot be restored",
        origin.created,
        origin.image_path.display()
    );
    let failure = Failed::new(&text, Diagnosis::new(Kind::MemoryMissing, State::Unharmed));
    operations_log::write_afterwards(
        &settings.paths.log_dir,
        "durable",
        &origin.container,
        SystemTime::now(),
        &Timeline::default(),
        Some(failure),
    );
}

/// Removes all files but the origin from a directory.
pub(crate) fn keep_origin_alone(directory: &Path) -> io::Result<()> {
    for (name, path) in stores::names_in(directory)? {
        if name != ORIGIN_FILE {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
