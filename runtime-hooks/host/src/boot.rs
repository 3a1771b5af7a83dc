//! The boots of this machine.

use std::fs;

/// Returns the id of this boot, which no other boot has (random(4)).
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}
