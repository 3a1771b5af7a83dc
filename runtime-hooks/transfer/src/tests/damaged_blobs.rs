//! Blobs of a layout that are not what their names say.

use super::*;

/// Flips a bit of a blob, as a disk does.
fn flip_bit(blob: &Path) {
    let mut bytes = fs::read(blob).unwrap();
    bytes[0] ^= 1;
    fs::write(blob, bytes).unwrap();
}

#[test]
fn a_damaged_blob_of_a_layout_is_not_referred_to() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "first").unwrap();
    let (manifest, _) = images.layout().manifest("first").unwrap();
    let memory = manifest.layers(Layer::Memory).next().unwrap();
    flip_bit(&images.blob(&memory.digest));
    images.push("image", "second").unwrap();
    images.pull("second", "pulled").unwrap();
    assert_eq!(images.contents("pulled"), images.contents("image"));
}

#[test]
fn a_push_mends_every_blob_of_a_layout_that_its_image_has() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    let (manifest, _) = images.layout().manifest("job").unwrap();
    let blobs = manifest.blobs();
    blobs.for_each(|blob| flip_bit(&images.blob(&blob.digest)));
    let error = images.pull("job", "pulled").unwrap_err();
    assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
    images.push("image", "job").unwrap();
    images.pull("job", "pulled").unwrap();
    assert_eq!(images.contents("pulled"), images.contents("image"));
}

#[test]
fn an_image_of_which_a_layout_lacks_a_blob_is_not_found() {
    let images = Images::new(PacksIn::Image);
    images.push("image", "job").unwrap();
    let (manifest, _) = images.layout().manifest("job").unwrap();
    let memory = manifest.layers(Layer::Memory).next().unwrap();
    fs::remove_file(images.blob(&memory.digest)).unwrap();
    let error = Incoming::find(&images.reference("job"), None).unwrap_err();
    assert_eq!(error.kind(), Kind::ImageDamaged, "{error}");
    assert!(error.to_string().contains(&memory.digest.hex()), "{error}");
}
