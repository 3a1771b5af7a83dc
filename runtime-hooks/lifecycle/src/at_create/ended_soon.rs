//! Images whose processes end as soon as they resume: without this check, every next container
//! would begin with such an image again.
//!
//! `start` notes the image with which a container goes on and the time, and `delete`, which engines
//! call for every ended container, whether it ended soon. `delete` has no exit code, so each end
//! counts that was not requested. The times are the start times of these two processes, which are
//! independent of clock changes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use serde::{Deserialize, Serialize};
use stasis_host::boot::boot_id;
use stasis_host::file_lock::lock_soon;
use stasis_linux::ProcessRef;
use stasis_linux::directory::Directory;
use stasis_linux::file::{self, Access, Durability};

use crate::at_create::no_first_image::NoFirstImage;
use stasis_engine::container::Container;
use stasis_engine::context::{Context, Outcome};
use stasis_engine::delete::{self, DeleteError};
use stasis_engine::image::manifest::Manifest;
use stasis_engine::operation::directory_of;
use stasis_engine::request::{AfterDump, CheckpointRequest, DeleteMode};

/// A shorter life has ended soon.
const SOON: Duration = Duration::from_secs(60);
/// An image is passed over after so many soon ends in a row.
const MOST: u32 = 2;
/// The lives that have begun with an image, below the state directory.
const LIVES: &str = "lives";
/// The counts of soon ends, by image: in the directory of the images, none of which has a name that
/// begins with a dot.
const FILE_NAME: &str = ".ended-soon";
const MOST_BYTES: u64 = 1 << 20;

/// A container that goes on from an image.
#[derive(Debug, Serialize, Deserialize)]
struct Life {
    image: PathBuf,
    /// The boot, which the state directory may outlive.
    boot: Option<String>,
    /// The time since that boot.
    began: Duration,
}

/// The file with the life of a container.
#[derive(Debug)]
pub(crate) struct Noted(PathBuf);

impl Noted {
    /// The file for a container.
    pub(crate) fn of(context: &Context, id: &str) -> Self {
        Self::below(&context.settings.paths.state_dir, &context.root, id)
    }

    fn below(state_dir: &Path, root: &Path, id: &str) -> Self {
        // Not in the operation's directory, which ends with the operation.
        let below = directory_of(state_dir, root, id);
        let root = below.parent().and_then(Path::file_name).unwrap_or_default();
        Self(state_dir.join(LIVES).join(root).join(id))
    }

    /// Notes that it goes on from this image now.
    pub(super) fn begin(&self, image: &Path) -> io::Result<()> {
        let life = Life {
            image: image.to_owned(),
            boot: boot_id(),
            began: now()?,
        };
        Directory::make(self.0.parent().unwrap_or(&self.0), 0o700)?;
        let text = serde_json::to_vec(&life)?;
        file::replace(&self.0, &text, Access::Private, Durability::Volatile)
    }

    /// The container is asked to end: its end is not its image's fault.
    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(&self.0);
    }

    /// Notes that it has ended.
    ///
    /// # Errors
    /// An I/O error: its end does not count then.
    fn end(&self) -> io::Result<()> {
        let Some(text) = file::read(&self.0, MOST_BYTES)? else {
            return Ok(());
        };
        // First, so that a second call does not count it again.
        fs::remove_file(&self.0)?;
        let life: Life = serde_json::from_slice(&text)?;
        match now()?.checked_sub(life.began) {
            Some(lived) if life.boot == boot_id() => life.has_ended(lived),
            _ => Ok(()),
        }
    }
}

/// Deletes a container. Its end counts, unless it has not ended yet or its end was asked for.
pub fn delete(
    context: &Context,
    id: &str,
    mode: DeleteMode,
    args: &[OsString],
) -> Result<Outcome, DeleteError> {
    let noted = Noted::of(context, id);
    let is_up = |container: Container| !container.init().is_gone();
    match context.container(id).ok().flatten().is_some_and(is_up) {
        true => noted.forget(),
        // If it cannot be noted, the end does not count.
        false => noted.end().unwrap_or_default(),
    }
    delete::delete(context, id, mode, args)
}

/// Notes that a checkpoint is to end a container: its end is not its image's fault.
pub fn note_checkpoint(context: &Context, request: &CheckpointRequest) {
    if request.after == AfterDump::Exit {
        Noted::of(context, &request.id).forget();
    }
}

impl Life {
    fn has_ended(&self, lived: Duration) -> io::Result<()> {
        let (Some(key), Some(name)) = (self.image.parent(), name_of(&self.image)) else {
            return Ok(());
        };
        let turn = File::open(key)?;
        lock_soon(&turn)?;
        let mut all = counts(key)?;
        match lived < SOON {
            true => *all.entry(name.to_owned()).or_default() += 1,
            false if all.remove(name).is_none() => return Ok(()),
            false => {}
        }
        all.retain(|name, _| key.join(name).is_dir());
        let text = serde_json::to_vec(&all)?;
        let path = key.join(FILE_NAME);
        file::replace(&path, &text, Access::Private, Durability::Durable)
    }
}

/// Returns when this process was started, since the boot.
fn now() -> io::Result<Duration> {
    let own = ProcessRef::open(std::process::id().try_into().map_err(io::Error::other)?)?;
    let ticks = own.ok_or(io::ErrorKind::NotFound)?.start_time();
    let hundredths = ticks.saturating_mul(100) / clock_ticks_per_second().max(1);
    Ok(Duration::from_millis(hundredths.saturating_mul(10)))
}

/// Refuses an image whose last containers have ended soon.
pub(super) fn refuse(image: &Path, manifest: &Manifest) -> Result<(), NoFirstImage> {
    let (Some(key), Some(name)) = (image.parent(), name_of(image)) else {
        return Ok(());
    };
    // An unreadable file counts as empty.
    let all = counts(key).unwrap_or_default();
    match all.get(name) {
        Some(times) if *times >= MOST => Err(NoFirstImage::EndsSoon {
            image: image.to_owned(),
            created: manifest.created.clone(),
            times: *times,
            noted: key.join(FILE_NAME),
        }),
        _ => Ok(()),
    }
}

fn counts(key: &Path) -> io::Result<BTreeMap<String, u32>> {
    let text = file::read(&key.join(FILE_NAME), MOST_BYTES)?;
    Ok(text.map_or(Ok(BTreeMap::new()), |text| serde_json::from_slice(&text))?)
}

fn name_of(image: &Path) -> Option<&str> {
    image.file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_which_two_in_a_row_have_ended_soon_is_refused() {
        let key = tempfile::tempdir().unwrap();
        let life = |name: &str| {
            let image = key.path().join(name);
            fs::create_dir_all(&image).unwrap();
            let (boot, began) = (boot_id(), Duration::ZERO);
            Life { image, boot, began }
        };
        let (one, two) = (life("1-stop"), life("2-stop"));
        let manifest = Manifest::implied("c1");
        let is_refused = |life: &Life| refuse(&life.image, &manifest).is_err();
        let soon = SOON - Duration::from_millis(10);
        one.has_ended(soon).unwrap();
        one.has_ended(SOON).unwrap();
        one.has_ended(soon).unwrap();
        assert!(!is_refused(&one), "they were not in a row");
        two.has_ended(soon).unwrap();
        one.has_ended(soon).unwrap();
        assert!(is_refused(&one) && !is_refused(&two));
        let why = refuse(&one.image, &manifest).unwrap_err().to_string();
        assert!(why.contains("/1-stop") && why.contains(FILE_NAME), "{why}");
        // A removed image leaves no count.
        fs::remove_dir(&one.image).unwrap();
        two.has_ended(soon).unwrap();
        assert!(is_refused(&two) && !is_refused(&one));
        two.has_ended(SOON).unwrap();
        assert_eq!(counts(key.path()).unwrap(), BTreeMap::new());
    }

    #[test]
    fn an_end_counts_once_unless_it_was_asked_for_or_of_another_boot() {
        let place = tempfile::tempdir().unwrap();
        let image = place.path().join("key/image");
        fs::create_dir_all(&image).unwrap();
        let state = place.path().join("state");
        let noted = Noted::below(&state, Path::new("/run/runc"), "c1");
        let counted = || {
            counts(&place.path().join("key"))
                .unwrap()
                .get("image")
                .copied()
        };
        noted.end().unwrap();
        noted.begin(&image).unwrap();
        noted.forget();
        noted.end().unwrap();
        assert_eq!(counted(), None);
        noted.begin(&image).unwrap();
        Noted::below(&state, Path::new("/run/runc"), "c2")
            .end()
            .unwrap();
        noted.end().unwrap();
        noted.end().unwrap();
        assert_eq!(counted(), Some(1));
        noted.begin(&image).unwrap();
        let mut life: Life = serde_json::from_slice(&fs::read(&noted.0).unwrap()).unwrap();
        life.boot = Some("another".to_owned());
        fs::write(&noted.0, serde_json::to_vec(&life).unwrap()).unwrap();
        noted.end().unwrap();
        assert_eq!(counted(), Some(1));
    }
}
