//! The manifest of an image. A manifest that is accepted is accepted again when it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| stasis_engine::image::manifest::fuzz(text));
