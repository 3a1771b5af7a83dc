//! Files that cannot be read now, of an image whose writer was killed.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use caps::{CapSet, Capability};
use stasis_memory_store::{ImageId, PacksIn};

use super::*;
use crate::bulk_memory::places::of_image;
use crate::bulk_memory::places::tests::fixtures::store_holes;
use crate::image::files;
use crate::image::manifest::{Manifest, StoredMemory};

/// Makes a file or directory one that cannot be read now.
type Fault<'f> = &'f dyn Fn(&Path);

/// Root may read and search everything.
fn without_roots_rights(work: impl FnOnce() + Send) {
    let rights = [
        Capability::CAP_DAC_OVERRIDE,
        Capability::CAP_DAC_READ_SEARCH,
    ];
    let in_thread = || {
        for right in rights {
            caps::drop(None, CapSet::Effective, right).unwrap();
        }
        work();
    };
    thread::scope(|threads| threads.spawn(in_thread).join().unwrap());
}

/// Seals a whole image with contents apart from it, and kills its writer.
fn left_sealed(directory: &Path, apart: &Path) {
    let image_id = ImageId::new(7);
    let image = begun(directory, &LATER);
    store_holes(image.path(), Some(of_image(apart, image_id)), 7);
    let mut manifest = Manifest::new("c1", "2026-11-27T06:00:00Z".into(), "580".into());
    manifest.memory = Some(StoredMemory {
        image_id,
        packs_in: PacksIn::Directory,
    });
    manifest.files = Some(files::list(image.path(), 1).unwrap());
    manifest.write(image.path()).unwrap();
    unlock(&image.lock).unwrap();
}

/// The container has ended, so what is removed for a fault that passes is lost.
#[test]
fn what_cannot_be_read_now_stays_for_who_can() {
    let later_version = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, text.replacen("\"version\":7", "\"version\":8", 1)).unwrap();
    };
    let unreadable = |path: &Path| {
        fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
    };
    let not_mounted = |path: &Path| fs::rename(path, path.with_extension("elsewhere")).unwrap();
    let faults: [(&str, Fault<'_>); 5] = [
        ("image/.stasis-new/stasis.json", &later_version),
        ("image/.stasis-new/stasis.json", &unreadable),
        ("image/.stasis-new/stasis-memory.index", &unreadable),
        ("image/.stasis-new/core-1.img", &unreadable),
        ("apart/00000000000000000000000000000007", &not_mounted),
    ];
    for (name, fault) in faults {
        let above = tempfile::tempdir().unwrap();
        let [directory, apart] = ["image", "apart"].map(|name| above.path().join(name));
        fs::create_dir(&apart).unwrap();
        left_sealed(&directory, &apart);
        let staging = directory.join(NEW);
        // After a restart of the machine all files are read.
        fs::write(staging.join(BOOT), "another").unwrap();
        let mut settings = Settings::default();
        settings.gpu_contents.directory = apart.clone();
        let there = names(&staging);
        fault(&above.path().join(name));
        without_roots_rights(|| {
            let finished = finish(&settings, &directory).unwrap_err();
            println!("{name}: {finished}");
            open(&settings, &directory).unwrap_err();
            NewImage::begin(&settings, &directory, None).unwrap_err();
        });
        assert_eq!(names(&staging), there, "{name}");
    }
}
