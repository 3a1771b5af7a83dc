//! `/proc/PID/smaps`, as the CRIU plugin reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| stasis_memory::fuzz_smaps(text));
