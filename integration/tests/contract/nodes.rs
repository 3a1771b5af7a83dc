//! Which NVIDIA device nodes a process has.

use std::fs;

use anyhow::Result;

/// Its mappings of nodes, as lines of /proc/PID/maps.
pub(crate) fn mappings(pid: i32) -> Result<Vec<String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(maps
        .lines()
        .filter(|line| is_node(line))
        .map(str::to_owned)
        .collect())
}

/// The nodes that it has descriptors of.
pub(crate) fn descriptors(pid: i32) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let target = fs::read_link(descriptor?.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if is_node(&target) {
            found.push(target.into_owned());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Whether it has a descriptor or a mapping of one.
pub(crate) fn holds_device(pid: i32) -> Result<bool> {
    Ok(!mappings(pid)?.is_empty() || !descriptors(pid)?.is_empty())
}

fn is_node(text: &str) -> bool {
    text.contains("/nvidia") && !text.contains(".so")
}
