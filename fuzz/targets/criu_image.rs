//! CRIU's files `pstree.img`, `core-PID.img` and `mountpoints-NS.img`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stasis::image::pstree::fuzz(bytes);
    stasis::image::tmpfs::fuzz(bytes);
});
