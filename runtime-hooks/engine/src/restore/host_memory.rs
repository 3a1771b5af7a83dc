//! Host memory for a restore: CRIU restores the GPU contents as memory of the new container's
//! processes, where they stay until the driver has moved them to the GPU.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;
use stasis_linux::cgroup::{Hierarchies, cgroups_path};

use crate::container::host_memory::{self, HostRoom, NoHostMemory, needed_for};
use crate::container::memory_limit::MemoryCgroup;
use crate::container::spec::Spec;
use crate::image::files::ImageFile;

/// The memory limits of `config.json` (OCI runtime specification, "resources"), those of `unified`
/// by the names of cgroup version 2.
const LIMITS: [&str; 3] = ["memory/limit", "unified/memory.high", "unified/memory.max"];

/// Checks that the host has enough memory for an image none of whose GPU contents become memory of
/// the container. The container's limits suffice, since it ran with them.
pub(crate) fn admit_host(room: HostRoom<'_>, image: &Path, bulk: u64) -> Result<(), NoHostMemory> {
    host_memory::admit_host(room, image_bytes(image)?.saturating_add(bulk))
}

/// Checks that the host has enough memory for an image of which `bulk` bytes are not in CRIU's
/// files, and that the cgroups above the new container's, and the limits of its own, have enough
/// for what CRIU restores: files of ours are not charged to it.
pub(crate) fn admit(
    room: HostRoom<'_>,
    spec: &Spec,
    image: &Path,
    bulk: u64,
) -> Result<(), NoHostMemory> {
    let bytes = image_bytes(image)?;
    host_memory::admit_host(room, bytes.saturating_add(bulk))?;
    let cgroup = match spec.cgroups_path() {
        Some(path) => cgroup_at(path)?,
        None => None,
    };
    if let Some(cgroup) = &cgroup {
        host_memory::check_limits_above(cgroup, needed_for(bytes))?;
    }
    refuse_tight(spec, bytes)
}

/// Refuses a container whose own limits cannot hold so many bytes. No margin is required beside
/// them: with these limits it was checkpointed.
fn refuse_tight(spec: &Spec, needed: u64) -> Result<(), NoHostMemory> {
    let limits = LIMITS
        .into_iter()
        .filter_map(|name| Some((name, limit(spec.tree(), name)?)));
    match limits.min_by_key(|(_, limit)| *limit) {
        Some((name, limit)) if limit < needed => Err(NoHostMemory::LimitOfNew {
            name: name.to_owned(),
            limit,
            needed,
        }),
        _ => Ok(()),
    }
}

/// A limit in bytes; `None` if there is none.
fn limit(spec: &Value, name: &str) -> Option<u64> {
    let value = spec.pointer(&format!("/linux/resources/{name}"))?;
    match value.as_str() {
        Some(text) => parse(text.trim()),
        None => value.as_u64().filter(|limit| *limit > 0),
    }
}

/// As the kernel reads a limit: a number with or without a suffix (memparse in lib/cmdline.c).
fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The size of CRIU's page images, which CRIU will restore (criu.org/Images: "pages-N.img").
///
/// # Errors
/// They cannot be read.
pub fn image_bytes(image: &Path) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for entry in fs::read_dir(image)? {
        let entry = entry?;
        let name = entry.file_name();
        if has_pages(&name.to_string_lossy()) {
            bytes = bytes.saturating_add(entry.metadata()?.len());
        }
    }
    Ok(bytes)
}

/// The same of an image that is not here, by its list of files.
pub(crate) fn listed_bytes(files: &[ImageFile]) -> u64 {
    let pages = files.iter().filter(|file| has_pages(&file.name));
    pages.map(|file| file.bytes).fold(0, u64::saturating_add)
}

fn has_pages(name: &str) -> bool {
    name.starts_with("pages-")
}

/// The memory cgroup that a container with this `cgroupsPath` will have.
fn cgroup_at(path: &str) -> io::Result<Option<MemoryCgroup>> {
    let Some(path) = cgroups_path(&from_the_root(path)) else {
        return Ok(None);
    };
    let cgroup = Hierarchies::read()?.cgroup("memory", &path);
    Ok(cgroup.map(MemoryCgroup::new))
}

/// crun takes a relative path from the root of the hierarchy.
fn from_the_root(path: &str) -> String {
    match path.starts_with('/') || path.contains(':') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_starts_at_the_root() {
        assert_eq!(from_the_root("c1"), "/c1");
        assert_eq!(from_the_root("/default/c1"), "/default/c1");
        assert_eq!(from_the_root("a.slice:b:c1"), "a.slice:b:c1");
    }

    #[test]
    fn the_pages_of_an_image_are_counted() {
        let image = tempfile::tempdir().unwrap();
        for (name, bytes) in [
            ("pages-1.img", 8192),
            ("pages-2.img", 4096),
            ("pstree.img", 100),
        ] {
            fs::write(image.path().join(name), vec![0; bytes]).unwrap();
        }
        assert_eq!(image_bytes(image.path()).unwrap(), 12288);
    }
}
