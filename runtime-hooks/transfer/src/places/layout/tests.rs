use std::os::unix::fs::symlink;

use stasis_oci_image::Kind;
use stasis_oci_image::document::annotations::Annotations;

use super::*;
use crate::places::StoreOutcome;

fn layout() -> (tempfile::TempDir, Layout) {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::open_or_make(&directory.path().join("a/layout")).unwrap();
    (directory, layout)
}

fn manifest(layout: &Layout, text: &str) -> Manifest {
    let (config, criu) = (add(layout, text.as_bytes()), add(layout, b"criu"));
    Manifest::new(config, [(Kind::Criu, criu.0, criu.1)], Annotations::new())
}

fn add(layout: &Layout, bytes: &[u8]) -> (Digest, u64) {
    let stored = layout.put(bytes).unwrap();
    (stored.digest, stored.bytes)
}

fn names(layout: &Layout) -> Vec<String> {
    let entries = fs::read_dir(layout.path.join("blobs/sha256")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn an_image_is_found_by_its_tag() {
    let (_directory, layout) = layout();
    let digest = layout.tag("job", &manifest(&layout, "first")).unwrap();
    let layout = Layout::open_or_make(&layout.path).unwrap();
    assert_eq!(
        layout.manifest("job").unwrap(),
        (manifest(&layout, "first"), digest)
    );
    let again = layout.manifest(&digest.to_string()).unwrap();
    assert_eq!(again, layout.manifest("job").unwrap());
    let described = layout.describe("job").unwrap();
    assert_eq!(
        (described.digest, described.media_type.as_str()),
        (digest, MANIFEST)
    );
    layout.tag("job", &manifest(&layout, "second")).unwrap();
    layout.tag("other", &manifest(&layout, "third")).unwrap();
    let (found, _) = layout.manifest("job").unwrap();
    assert_eq!(layout.read(found.config(), 100).unwrap(), b"second");
    let newest = layout.images("", 2).unwrap();
    assert_eq!(
        newest,
        [manifest(&layout, "third"), manifest(&layout, "second")]
    );
    let error = layout.manifest("none").unwrap_err();
    assert!(matches!(error, OciImageError::NoTag { .. }), "{error}");
}

#[test]
fn a_blob_goes_on_behind_what_is_there() {
    let (_directory, layout) = layout();
    let (digest, bytes) = add(&layout, b"contents");
    let blob = Descriptor::new("", digest, bytes);
    for (at, expected) in [(0, "contents"), (3, "tents"), (8, ""), (9, "")] {
        let mut read = String::new();
        let mut reader = layout.reader(&blob, at).unwrap();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, expected);
    }
}

#[test]
fn a_blob_is_what_its_digest_says_or_an_error() {
    let (_directory, layout) = layout();
    let (digest, size) = add(&layout, b"contents");
    let blob = Descriptor::new("x", digest, size);
    let path = layout.path.join("blobs/sha256").join(digest.hex());
    assert_eq!(layout.read(&blob, 8).unwrap(), b"contents");
    layout.read(&blob, 7).unwrap_err();
    for other in [&b"CONTENTS"[..], b"content", b"contents "] {
        fs::write(&path, other).unwrap();
        let error = layout.read(&blob, 8).unwrap_err();
        assert!(matches!(error, OciImageError::Blob { .. }), "{error}");
    }
    fs::remove_file(&path).unwrap();
    let error = layout.read(&blob, 8).unwrap_err();
    assert!(matches!(error, OciImageError::NoBlob { .. }), "{error}");
    fs::write(layout.path.join("elsewhere"), b"contents").unwrap();
    symlink(layout.path.join("elsewhere"), &path).unwrap();
    let error = layout.read(&blob, 8).unwrap_err();
    assert!(matches!(error, OciImageError::Io { .. }), "{error}");
    assert!(!layout.has(&digest, size));
}

#[test]
fn a_blob_that_is_not_finished_leaves_nothing() {
    let (_directory, layout) = layout();
    let mut blob = layout.new_blob().unwrap();
    blob.write_all(b"some").unwrap();
    // Another push leaves alone what is being written.
    add(&layout, b"other");
    assert_eq!(names(&layout).len(), 2);
    blob.write_all(b" more").unwrap();
    let stored = blob.finish().unwrap();
    assert_eq!(
        (stored.digest, stored.bytes, stored.outcome),
        (Digest::of(b"some more"), 9, StoreOutcome::New)
    );
    drop(layout.new_blob().unwrap());
    assert_eq!(names(&layout).len(), 2);
    // As if it had been killed.
    fs::write(layout.path.join("blobs/sha256/.stasis-new-0"), "rest").unwrap();
    let mut again = layout.new_blob().unwrap();
    again.write_all(b"some more").unwrap();
    assert_eq!(again.finish().unwrap().outcome, StoreOutcome::AlreadyStored);
    assert_eq!(names(&layout).len(), 2);
}

#[test]
fn nothing_else_is_a_layout() {
    let (directory, layout) = layout();
    let no_layout = |path: &Path| {
        let error = Layout::open_or_make(path).unwrap_err();
        assert!(matches!(error, OciImageError::NoLayout { .. }), "{error}");
    };
    no_layout(directory.path());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    for mark in ["", "{}", r#"{"imageLayoutVersion":"2"}"#] {
        fs::write(layout.path.join(MARK), mark).unwrap();
        no_layout(&layout.path);
    }
}

#[test]
fn a_layout_whose_making_was_cut_off_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::create_dir_all(path.join("blobs/sha256")).unwrap();
    fs::write(file::staged(&path.join(MARK)).unwrap(), "{").unwrap();
    Layout::open_or_make(path).unwrap();
    assert_eq!(fs::read_dir(path).unwrap().count(), 2);
}

#[test]
fn a_link_in_the_place_of_the_blobs_is_not_followed() {
    let (directory, layout) = layout();
    let blobs = layout.path.join("blobs");
    fs::rename(&blobs, directory.path().join("moved")).unwrap();
    symlink(directory.path().join("moved"), &blobs).unwrap();
    let error = Layout::open(&layout.path).unwrap_err();
    assert!(matches!(error, OciImageError::Io { .. }), "{error}");
}

#[test]
fn what_is_no_manifest_of_ours_is_no_image() {
    let (_directory, layout) = layout();
    layout.tag("job", &manifest(&layout, "first")).unwrap();
    let (theirs, bytes) = add(&layout, b"{\"schemaVersion\":2}");
    let mut index = layout.index().unwrap();
    index.tag("theirs", Descriptor::new(MANIFEST, theirs, bytes));
    index.tag(
        "index",
        Descriptor::new("application/vnd.oci.image.index.v1+json", theirs, bytes),
    );
    layout.write_index(&index).unwrap();
    assert_eq!(layout.images("", 10).unwrap().len(), 1);
    for tag in ["theirs", "index"] {
        let error = layout.manifest(tag).unwrap_err();
        assert!(matches!(error, OciImageError::Document { .. }), "{error}");
    }
    layout.manifest("job").unwrap();
}
