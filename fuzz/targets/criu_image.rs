//! Files of CRIU that the engine reads from an image.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stasis::image::pstree::fuzz(bytes);
    stasis::image::tmpfs::fuzz(bytes);
    stasis::image::contents::fuzz(bytes);
});
