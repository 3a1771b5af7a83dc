//! `/proc/self/mountinfo`, and `/proc/PID/cgroup`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stasis_linux::cgroup::Membership;
use stasis_linux::mountinfo;

fuzz_target!(|text: &[u8]| {
    let lines = text.split(|byte| *byte == b'\n').count();
    assert!(mountinfo::parse(text).len() <= lines);
    let _ = Membership::parse(text);
});
