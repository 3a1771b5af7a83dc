use std::path::Path;

use stasis_config::{Flavor, LowLevel};
use stasis_engine::image::directory::INVENTORY;

use super::*;

/// The directory after a checkpoint that failed, and ended its container.
fn is_kept_after(make: impl FnOnce(&Path)) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("1-stop");
    fs::create_dir(&image).unwrap();
    make(&image);
    let place = RuntimeLocation {
        low_level: LowLevel {
            path: "/nonexistent".into(),
            flavor: Flavor::Runc,
        },
        root: directory.path().join("root"),
    };
    let own = std::process::id().try_into().unwrap();
    let own = ProcessRef::open(own).unwrap().unwrap();
    let process = StopProcess {
        stopping: Stopping::of(directory.path(), &place.root, "job", &own),
        place,
        id: "job".to_owned(),
        signal: 15,
        image: image.clone(),
        commands: StopCommands {
            checkpoint: Vec::new(),
            kill: Vec::new(),
        },
        settings: Settings::default(),
        began: SystemTime::now(),
        pushed: None,
    };
    let context = process.context();
    let timeline = process.without(&context, Timeline::default(), None, "the disk is full");
    let is_kept = image.exists();
    let notes = timeline.notes().join("\n");
    assert_eq!(
        notes.contains("has ended the container"),
        is_kept,
        "{notes}"
    );
    is_kept
}

/// An image is in the first of these places until it is on disk, and in the last once it is done.
#[test]
fn the_last_copy_of_a_container_stays_wherever_it_is() {
    for place in [".stasis-new", ".stasis-complete", ".stasis-moving", "."] {
        let is_kept = is_kept_after(|image| {
            fs::create_dir_all(image.join(place)).unwrap();
            fs::write(image.join(place).join(INVENTORY), "inventory").unwrap();
        });
        assert!(is_kept, "{place}");
    }
}

#[test]
fn what_cannot_be_restored_goes() {
    assert!(!is_kept_after(|_| ()));
    let without_inventory = |image: &Path| {
        fs::create_dir(image.join(".stasis-new")).unwrap();
        fs::write(image.join(".stasis-new/core-1.img"), "core").unwrap();
    };
    assert!(!is_kept_after(without_inventory));
}
