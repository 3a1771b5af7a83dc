//! GPU contents on a disk of their own: they are on it before their image is reported good.

use std::fs;

use stasis_memory_store::{INDEX_FILE, ImageId, Index, PacksIn, verify_past_cache};

use super::super::*;
use super::begin;
use super::disk::{Disk, EXT4, Kind, can_mount, new_disk};
use crate::bulk_memory::places::of_image;
use crate::bulk_memory::places::tests::fixtures::store_holes;
use crate::image::manifest::{Manifest, StoredMemory};
use stasis_config::Settings;
use stasis_host::file_lock::unlock;

const DISK: Kind = Kind {
    bytes: 64 << 20,
    ..EXT4
};

/// The power of the contents' disk fails after a recovery has committed an image whose writer was
/// killed before it brought anything to disk.
#[test]
fn a_recovery_brings_them_to_disk_with_their_image() {
    if !can_mount(&DISK) {
        return;
    }
    let below = tempfile::tempdir_in("/dev/shm").unwrap();
    let [directory, at, after] = ["image", "apart", "after"].map(|name| below.path().join(name));
    fs::create_dir(&at).unwrap();
    fs::create_dir(&after).unwrap();
    let disk = Disk::mount(&DISK, new_disk(&DISK, below.path()), &at);
    let (id, mut settings) = (7, Settings::default());
    let image_id = ImageId::new(id.into());
    settings.gpu_contents.directory = at.clone();

    let image = begin(&directory).unwrap();
    store_holes(image.path(), Some(of_image(&at, image_id)), id);
    let mut manifest = Manifest::new("job", "2026-11-27T06:00:00Z".into(), "580".into());
    manifest.memory = Some(StoredMemory {
        image_id,
        packs_in: PacksIn::Directory,
    });
    manifest.write(image.path()).unwrap();
    fs::write(image.path().join(INVENTORY), "inventory").unwrap();
    unlock(&image.lock).unwrap();
    assert_eq!(finish(&settings, &directory).unwrap(), Rest::Committed);
    assert!(directory.join(INDEX_FILE).exists());

    let _disk = Disk::mount(&DISK, disk.copy("after"), &after);
    let packs = of_image(&after, image_id);
    let index = Index::read(&directory).unwrap().unwrap();
    assert!(index.is_of_store(&packs).unwrap());
    verify_past_cache(&index, &packs, |damage| panic!("{damage:?}"));
}
