//! Blobs of which a killed pull has left a part.

use std::os::unix::fs::PermissionsExt;

use stasis_memory_store::{pack_header, pack_of};

use super::*;
use crate::pull::parts::Parts;
use crate::pull::whole::pull;

/// Leaves so many bytes of a blob, as a killed pull into `pulled` does.
fn leave(images: &Images, contents: &[u8]) {
    let (manifest, _) = images.layout().manifest("job").unwrap();
    let blob = manifest.layers(Layer::Memory).last().unwrap();
    let pack = pack_of(blob.digest.bytes(), blob.size).unwrap();
    let staging = images.path(".pulled.stasis-pull");
    fs::create_dir(&staging).unwrap();
    fs::set_permissions(&staging, fs::Permissions::from_mode(0o700)).unwrap();
    let part = [&pack_header(&pack)[..], contents].concat();
    fs::write(staging.join(format!("{}.new", pack.file_name())), part).unwrap();
}

fn last_blob(images: &Images) -> Vec<u8> {
    let (manifest, _) = images.layout().manifest("job").unwrap();
    let last = manifest.layers(Layer::Memory).last().unwrap().digest;
    fs::read(images.blob(&last)).unwrap()
}

#[test]
fn what_has_come_of_a_blob_is_not_fetched_again() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    let blob = last_blob(&images);
    for there in [blob.len() / 2, blob.len()] {
        leave(&images, &blob[..there]);
        let pulled = images.pull("job", "pulled").unwrap();
        assert_eq!(pulled.bytes - pulled.moved_bytes, there as u64);
        assert_eq!(images.contents("pulled"), images.contents("image"));
        let names = fs::read_dir(images.path("pulled")).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(names.all(|name| !name.ends_with(".new")));
        fs::remove_dir_all(images.path("pulled")).unwrap();
    }
}

/// As if the machine had lost power, or another user's longer file were there.
#[test]
fn what_has_come_of_a_blob_and_is_something_else_is_fetched_again() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    let blob = last_blob(&images);
    let longer = [&blob[..], b"more"].concat();
    for there in [vec![0; blob.len() / 2], vec![0; blob.len()], longer] {
        leave(&images, &there);
        let pulled = images.pull("job", "pulled").unwrap();
        assert_eq!(pulled.moved_bytes, pulled.bytes);
        assert_eq!(images.contents("pulled"), images.contents("image"));
        fs::remove_dir_all(images.path("pulled")).unwrap();
    }
}

/// The part that came before the registry was lost stays for the next pull, and nothing else does.
#[test]
fn what_has_come_before_the_registry_was_lost_stays() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    let blob = last_blob(&images);
    leave(&images, &blob[..blob.len() / 2]);
    let lost = side_by_side::lost_registry(&images);
    let parts = Parts::find(&lost, &images.reference("job")).unwrap();
    let pulled = pull(images.settings(), &lost, &parts, &images.path("pulled"));
    let error = pulled.unwrap_err();
    assert_eq!(error.kind(), Kind::Registry, "{error}");
    let pulled = images.pull("job", "pulled").unwrap();
    assert!(pulled.bytes - pulled.moved_bytes >= blob.len() as u64 / 2);
    assert_eq!(images.contents("pulled"), images.contents("image"));
}
