//! CRIU's files `pstree.img` and `core-PID.img`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| stasis::image::pstree::fuzz(bytes));
