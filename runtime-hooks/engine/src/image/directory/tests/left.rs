//! The remains of a writer that has failed, or was killed.

use stasis_gpu::cuda::gpu_use::CudaProcess;
use stasis_gpu::cuda::process_set::initial_state::ProcessId;

use super::*;
use crate::image::files;
use crate::image::manifest::Manifest;
use crate::operation::outcome::{COMPLETE, PENDING, SharedOutcome};
use crate::request::AfterDump;

/// Kills the writer. Processes of other tests may have its files open for a moment.
fn kill(image: &NewImage) {
    unlock(&image.lock).unwrap();
}

/// The next process finishes an unsealed image as long as the page cache vouches for it.
#[test]
fn a_complete_image_of_a_container_that_has_ended_stays() {
    let directory = earlier();
    let image = begun(directory.path(), &LATER);
    assert_eq!(image.give_up(&ended()), Some(directory.path().join(NEW)));
    kill(&image);
    opens(directory.path(), &LATER);

    let directory = tempfile::tempdir().unwrap();
    let image = begun(directory.path(), &LATER);
    assert_eq!(image.give_up(&ended()), Some(directory.path().to_owned()));
    is_whole(directory.path(), &LATER);
}

#[test]
fn what_a_disk_has_not_taken_replaces_nothing_that_it_has() {
    let failing = |_: &FileSystem| Err(io::Error::from_raw_os_error(5));
    let directory = earlier();
    let image = begun(directory.path(), &LATER);
    let error = image.commit(None, failing).unwrap_err();
    assert!(
        matches!(error, ImageDirectoryError::NotOnDisk { .. }),
        "{error}"
    );
    assert_eq!(image.give_up(&ended()), Some(directory.path().join(NEW)));
    kill(&image);
    let opened = open(&Settings::default(), directory.path()).unwrap();
    assert_eq!(
        fs::read_to_string(opened.path().join("core-1.img")).unwrap(),
        "earlier"
    );
}

/// The machine restarted before data were on disk: hashes vouch for an image then.
#[test]
fn what_another_boot_has_left_is_compared_with_its_hashes() {
    let sealed = |damage: &str| {
        let directory = earlier();
        let mut manifest = Manifest::new("c1", "2026-11-27T06:00:00Z".into(), "580".into());
        let image = begun(directory.path(), &LATER);
        manifest.files = Some(files::list(image.path(), 1).unwrap());
        manifest.processes = vec![CudaProcess {
            pid: 1,
            name: "counter".into(),
            gpus: Vec::new(),
        }];
        manifest.write(image.path()).unwrap();
        fs::write(image.path().join(BOOT), "another").unwrap();
        if !damage.is_empty() {
            fs::write(image.path().join(damage), "later, and damaged").unwrap();
        }
        kill(&image);
        directory
    };
    let core = |directory: &Path| {
        let opened = open(&Settings::default(), directory).unwrap();
        fs::read_to_string(opened.path().join("core-1.img")).unwrap()
    };
    assert_eq!(core(sealed("").path()), "later");
    for damage in ["core-1.img", "pages-1.img", INVENTORY] {
        let directory = sealed(damage);
        assert_eq!(core(directory.path()), "earlier");
        let image = begin(directory.path()).unwrap();
        assert_eq!(names(image.path()), [BOOT.to_owned()].into());
    }
    let unsealed = earlier();
    let image = begun(unsealed.path(), &LATER);
    fs::write(image.path().join(BOOT), "another").unwrap();
    kill(&image);
    assert_eq!(core(unsealed.path()), "earlier");
}

/// CRIU may live longer than its parent.
#[test]
fn whoever_was_started_to_write_keeps_others_out() {
    let directory = earlier();
    let image = begin(directory.path()).unwrap();
    let mut child = image
        .lending_lock(|| Command::new("sleep").arg("60").spawn())
        .unwrap();
    drop(image);
    let error = begin(directory.path()).unwrap_err();
    assert!(matches!(error, ImageDirectoryError::Busy(_)), "{error}");
    // The earlier image can be restored meanwhile.
    assert_eq!(
        open(&Settings::default(), directory.path()).unwrap().path(),
        directory.path()
    );
    child.kill().unwrap();
    child.wait().unwrap();
    begin(directory.path()).unwrap();
}

#[test]
fn an_image_with_a_shared_outcome_takes_its_place_with_the_others() {
    let images = tempfile::tempdir().unwrap();
    let directory = images.path().join("c1");
    let own = ProcessRef::open(std::process::id().try_into().unwrap());
    let outcome = SharedOutcome {
        id: "1".to_owned(),
        directory: images.path().to_owned(),
        after: AfterDump::Exit,
        parent: ProcessId::of(&own.unwrap().unwrap()),
        engine: None,
    };
    let pending = images.path().join(format!("{PENDING}1"));
    fs::write(&pending, serde_json::to_vec(&outcome).unwrap()).unwrap();
    let settings = Settings::default();
    let image = NewImage::begin(&settings, &directory, Some(&outcome)).unwrap();
    fs::write(image.path().join(INVENTORY), "1").unwrap();
    commit(&image);
    assert!(!has_inventory(&directory));
    // Its writer is killed, and no process writes there before the decision.
    kill(&image);
    assert_eq!(finish(&settings, &directory).unwrap(), Rest::Undecided);
    // Power fails behind the decision. The image has no hashes, and was on disk before.
    fs::write(image.path().join(BOOT), "another").unwrap();
    let error = begin(&directory).unwrap_err();
    assert!(matches!(error, ImageDirectoryError::Busy(_)), "{error}");
    fs::rename(&pending, images.path().join(COMPLETE)).unwrap();
    assert_eq!(finish(&settings, &directory).unwrap(), Rest::Committed);
    assert!(has_inventory(&directory));
    assert!(!directory.join(NEW).exists() && !directory.join(SHARED).exists());
}
