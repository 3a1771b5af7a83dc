//! One try to push the image of a stopped container, and the result of all tries.

use std::time::SystemTime;

use stasis_engine::error::chain;
use stasis_engine::error::kind::{Diagnosis, Kind, State};
use stasis_engine::error::operations_log::{Failed, write_afterwards};
use stasis_engine::operation::timeline::Timeline;
use stasis_lifecycle::at_stop::push::Push;
use stasis_memory_store::Lengths;
use stasis_oci_image::{Digest, Reference};

use crate::at_stop::latest::{Latest, Standing, other_here};
use crate::error::MoveError;
use crate::local::source::Source;
use crate::places::open;
use crate::push::push;

/// The result of a push.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The registry has it.
    There,
    /// The image was not pushed, since the job has a later one. A request for the latest image
    /// would not get it, and the later one would wait for it.
    LeftBehind {
        /// Its name.
        later: String,
    },
}

/// Returns whether no further try is needed.
pub(super) fn is_settled(tried: &Result<Pushed, MoveError>) -> bool {
    tried.as_ref().err().is_none_or(can_never_be)
}

/// Returns whether another try may succeed without an operator: the registry may come back, and
/// others may make room where blobs are gathered.
pub(super) fn may_pass(error: &MoveError) -> bool {
    matches!(
        error.kind(),
        Kind::Registry | Kind::NoSpace | Kind::Busy | Kind::Hung
    )
}

/// Returns whether the fault is the image's own: no restore would take it either.
fn can_never_be(error: &MoveError) -> bool {
    let of_image = !matches!(error, MoveError::Elsewhere(_));
    of_image && matches!(error.kind(), Kind::Unsupported | Kind::ImageDamaged)
}

/// Pushes the image, unless the registry has it, or the job has a later one.
pub(super) fn attempt(stopped: &Push, latest: &Latest) -> Result<Pushed, MoveError> {
    if let Some(later) = later_here(stopped) {
        return Ok(Pushed::LeftBehind { later });
    }
    match latest.standing()? {
        Standing::Later(later) => return Ok(Pushed::LeftBehind { later }),
        Standing::This => return Ok(Pushed::There),
        Standing::Earlier => {}
    }
    let reference: Reference = stopped.reference().parse()?;
    let digest = match latest.pushed_before(reference.tag())? {
        Some(digest) => digest,
        None => {
            latest.announce()?;
            push_to(stopped, &reference)?
        }
    };
    latest.is_this(&digest)?;
    Ok(Pushed::There)
}

/// Finds a later image of the key that is still to be pushed, and can be.
fn later_here(stopped: &Push) -> Option<String> {
    let other = other_here(stopped).map(|other| other.name);
    other.filter(|other| *other > stopped.to_push.name)
}

fn push_to(stopped: &Push, reference: &Reference) -> Result<Digest, MoveError> {
    let settings = &stopped.how.settings;
    let source = Source::open(settings, &stopped.image())?;
    let place = open(reference, None)?;
    let pushed = push(
        settings,
        source,
        &*place,
        (reference, None),
        &(),
        Lengths::of,
    )?;
    pushed.digest.parse().map_err(|_| MoveError::NoImage {
        reference: reference.to_string(),
        what: "it has no digest".to_owned(),
    })
}

/// Gives the tag of the latest image back, if it is not this one, and logs the result.
pub(super) fn end(
    stopped: &Push,
    latest: &Latest,
    mut timeline: Timeline<'_>,
    tried: &Result<Pushed, MoveError>,
) {
    if !matches!(tried, Ok(Pushed::There)) {
        let _ = latest.take_back(stopped);
    }
    if let Ok(Pushed::LeftBehind { later }) = tried {
        let image = stopped.image();
        timeline.note(format!(
            "{} is not pushed: the job has gone on, and {later} is its latest image",
            image.display()
        ));
    }
    let failure = tried.as_ref().err().map(|error| failure(stopped, error));
    let (log_dir, id) = (
        &stopped.how.settings.paths.log_dir,
        &stopped.to_push.container,
    );
    write_afterwards(log_dir, "push", id, SystemTime::now(), &timeline, failure);
}

fn failure(stopped: &Push, error: &MoveError) -> Failed {
    let (image, reference) = (stopped.image(), stopped.reference());
    let (image, why) = (image.display(), chain(error));
    let text = match can_never_be(error) {
        true => format!("{why}; the image stays in {image}, and is not tried again"),
        false => format!(
            "{why}; the image stays in {image}: the next stop of a container that is saved, \
             the next create with the latest image of a key, or `stasis recover` tries \
             again, and `stasis push {reference} {image}` now"
        ),
    };
    Failed::new(&text, Diagnosis::new(error.kind(), State::Unharmed))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::path::Path;

    use stasis_config::Settings;
    use stasis_memory_store::{ImageId, PacksIn};
    use tempfile::TempDir;

    use super::*;
    use stasis_engine::image::manifest::{Manifest, StoredMemory};
    use stasis_lifecycle::stopped::push_again::PushAgain;
    use stasis_lifecycle::stopped::to_push::ToPush;

    fn complete(image: &Path) {
        let mut manifest = Manifest::new("job", "2026-11-26T01:00:00Z".into(), "580".into());
        manifest.memory = Some(StoredMemory {
            image_id: ImageId::new(1),
            packs_in: PacksIn::Image,
        });
        manifest.files = Some(Vec::new());
        manifest.write(image).unwrap();
    }

    #[test]
    fn a_full_disk_may_get_room_and_a_damaged_image_stays_so() {
        let of =
            |kind: io::ErrorKind| MoveError::io("gather in", Path::new("/var/tmp"))(kind.into());
        assert!(may_pass(&of(io::ErrorKind::StorageFull)));
        assert!(!may_pass(&of(io::ErrorKind::InvalidData)));
        assert!(!may_pass(&of(io::ErrorKind::NotFound)));
    }

    #[test]
    fn a_later_image_of_the_key_that_can_be_pushed_leaves_it_behind() {
        let all = TempDir::new().unwrap();
        let mut settings = Settings::default();
        settings.restore.registry = "registry.example/jobs".to_owned();
        settings.restore.at_create = all.path().to_owned();
        let how = PushAgain::of(&settings).unwrap();
        let push = |key: &str, name: &str| {
            let image = all.path().canonicalize().unwrap().join(key).join(name);
            fs::create_dir_all(&image).unwrap();
            let to_push = ToPush::new(all.path(), &image, "job", SystemTime::now()).unwrap();
            to_push.note().unwrap();
            let how = how.clone();
            Push { how, to_push }
        };
        let [earlier, own] = ["1-stop", "2-stop"].map(|name| push("job", name));
        assert_eq!(own.reference(), "registry.example/jobs/job:2-stop");
        complete(&earlier.image());
        complete(&push("other", "3-stop").image());
        let later = push("job", "3-stop");
        assert_eq!(later_here(&own), None);
        complete(&later.image());
        assert_eq!(later_here(&own).as_deref(), Some("3-stop"));
        later.to_push.hold().unwrap().unwrap().remove();
        assert_eq!(later_here(&own), None);
    }
}
