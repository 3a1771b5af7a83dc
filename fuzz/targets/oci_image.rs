//! An image in a registry or an OCI layout: its manifest, the list of the contents of each blob,
//! and the archive of its engine's files. The first two are accepted again when they are written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stasis_memory_store::{decode_contents, encode_contents};
use stasis_oci_image::{Announcement, Manifest};
use stasis_transfer::archive;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::from_text(bytes, "fuzzed") {
        let written = manifest.to_text().expect("what was read can be written");
        let again = Manifest::from_text(&written, "written").expect("and read again");
        assert_eq!(again, manifest);
    }
    let _ = archive::read_all(bytes, 1 << 20);
    if let Ok(Some(announcement)) = Announcement::from_text(bytes) {
        let again = Announcement::from_text(&announcement.to_text()).expect("read again");
        assert_eq!(again, Some(announcement));
    }
    if let Ok(blobs) = decode_contents(bytes) {
        assert_eq!(encode_contents(&blobs), bytes);
    }
});
