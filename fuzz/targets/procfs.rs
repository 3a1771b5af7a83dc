//! The files of `/proc/PID`, whose names and paths a container chooses.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| stasis_linux::procfs::fuzz(text));
