//! The settings. What is refused as a whole is still used table by table.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| stasis_config::fuzz(text));
