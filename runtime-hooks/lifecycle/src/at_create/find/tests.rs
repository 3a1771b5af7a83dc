use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::at_create::no_first_image::no_first_image;
use crate::pod::{CONTAINERD, CRI_O};
use crate::tests::make_images;
use stasis_engine::image::directory::INVENTORY;

/// Images of two namespaces, and a bundle.
struct Machine {
    directory: TempDir,
    settings: Settings,
}

impl Machine {
    fn with(images: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let all = directory.path().join("images");
        make_images(&all, images);
        let mut settings = Settings::default();
        settings.restore.at_create = all;
        Self {
            directory,
            settings,
        }
    }

    fn images(&self) -> &Path {
        &self.settings.restore.at_create
    }

    fn find(&self, annotations: &serde_json::Value, asked: &FirstImage) -> Result<String, Refusal> {
        let bundle = self.directory.path();
        let spec = json!({"annotations": annotations}).to_string();
        fs::write(bundle.join("config.json"), spec).unwrap();
        let mut passed_over = PassedOver::default();
        let cancel = Cancel::not_needed();
        let found = find(
            &self.settings,
            &cancel,
            bundle,
            "c1",
            asked,
            &mut passed_over,
        );
        let found = found.map_err(|none| passed_over.why_none(none))?;
        let below = found
            .image
            .strip_prefix(fs::canonicalize(self.images()).unwrap());
        Ok(below.unwrap().to_str().unwrap().to_owned())
    }
}

fn why<T>(refused: &Result<T, Refusal>) -> Option<&NoFirstImage> {
    refused.as_ref().err().and_then(no_first_image)
}

fn directory(path: impl Into<PathBuf>) -> FirstImage {
    FirstImage::Directory(path.into())
}

#[test]
fn without_the_setting_no_container_names_an_image() {
    let mut machine = Machine::with(&["job"]);
    let all = std::mem::take(&mut machine.settings.restore.at_create);
    let refused = machine.find(&json!({}), &directory(all.join("job")));
    assert!(matches!(why(&refused), Some(NoFirstImage::Off)));
}

#[test]
fn a_pod_reaches_no_image_of_another_namespace() {
    let machine = Machine::with(&["red/job", "blue/job", "blue/secret"]);
    let red = json!({CONTAINERD.namespace: "red"});
    assert_eq!(machine.find(&red, &directory("job")).unwrap(), "red/job");
    let blue = machine.images().join("blue/job");
    symlink(&blue, machine.images().join("red/link")).unwrap();
    for path in [
        blue,
        "link".into(),
        machine.images().join("red/../blue/job"),
    ] {
        let refused = machine.find(&red, &directory(path));
        let elsewhere = matches!(
            refused,
            Err(Refusal::NotAllowed(NotAllowed::Elsewhere { .. }))
        );
        assert!(elsewhere, "{refused:?}");
    }
    assert!(machine.find(&red, &directory("secret")).is_err());
    let root = machine.find(&json!({}), &directory("blue/secret"));
    assert_eq!(root.unwrap(), "blue/secret");
    for odd in ["", "..", "blue/..", "."] {
        let refused = machine.find(&json!({CRI_O.namespace: odd}), &directory("job"));
        let namespace = matches!(why(&refused), Some(NoFirstImage::Namespace(_)));
        assert!(namespace, "{odd:?}: {refused:?}");
    }
    let two = json!({CONTAINERD.namespace: "red", CRI_O.namespace: "blue"});
    assert!(machine.find(&two, &directory("job")).is_err());
}

#[test]
fn a_host_without_images_gets_a_place_for_them() {
    let machine = Machine::with(&[]);
    assert!(!machine.images().exists());
    make_place_of_pulled(&machine.settings).unwrap();
    let made = fs::metadata(machine.images()).unwrap().permissions();
    assert_eq!(made.mode() & 0o777, key::MODE);
    make_place_of_pulled(&machine.settings).unwrap();
    fs::set_permissions(machine.images(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = make_place_of_pulled(&machine.settings);
    assert!(matches!(refused, Err(NotAllowed::NotRoots { .. })));
}

#[test]
fn what_others_may_write_is_no_image() {
    let machine = Machine::with(&["job"]);
    let job = machine.images().join("job");
    fs::set_permissions(&job, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = machine.find(&json!({}), &directory("job"));
    assert!(matches!(
        refused,
        Err(Refusal::NotAllowed(NotAllowed::NotRoots { .. }))
    ));
}

#[test]
fn the_latest_is_the_last_complete_one_by_name() {
    let machine = Machine::with(&["job/2026-11-24", "job/2026-11-25", "other/2026-11-26"]);
    let latest = FirstImage::Latest("job".into());
    let find = || machine.find(&json!({}), &latest);
    assert_eq!(find().unwrap(), "job/2026-11-25");
    // Being written.
    fs::create_dir(machine.images().join("job/2026-11-26")).unwrap();
    fs::write(machine.images().join("job/README"), "text").unwrap();
    assert_eq!(find().unwrap(), "job/2026-11-25");
    for image in ["job/2026-11-24", "job/2026-11-25"] {
        fs::remove_file(machine.images().join(image).join(INVENTORY)).unwrap();
    }
    assert!(matches!(why(&find()), Some(NoFirstImage::Missing(_))));
}
