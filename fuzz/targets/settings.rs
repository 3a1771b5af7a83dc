//! The settings: read as a whole, and table by table, as settings that are refused are used.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| stasis_config::fuzz(text));
