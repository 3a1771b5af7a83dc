//! Files of CRIU that the engine reads from an image.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stasis_engine::image::pstree::fuzz(bytes);
    stasis_engine::image::tmpfs::fuzz(bytes);
    stasis_engine::image::contents::fuzz(bytes);
});
