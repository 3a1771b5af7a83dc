//! Host memory for a restore: CRIU brings the GPU contents back as memory of the new container's processes, where they are until the
//! driver has put them on the GPU.
//!
//! The low-level runtime makes the container's cgroup and CRIU fills it in one go, so the container's own limit is raised in the
//! specification that it reads, and set to what the caller wanted with the low-level runtime's `update`, which records it, too. Limits
//! of the cgroups above are raised where they are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::engine::Engine;
use crate::host_memory::{self, NoHostMemory};
use crate::low_level;
use crate::memory_limit::MemoryCgroup;
use crate::spec::Spec;

/// The limits in `config.json` (OCI runtime specification, "memory").
const LIMITS: &str = "/linux/resources/memory";
/// Names of all parts of a cgroup's path together; more is no path of an engine.
const MAX_PARTS: usize = 64;

/// What a restore needs, and what was changed for it.
#[derive(Debug)]
pub(crate) struct RestoredMemory {
    /// All memory that the image holds, in bytes.
    bytes: u64,
    /// The cgroup that the container's own will be made in.
    parent: Option<MemoryCgroup>,
    /// The limits that the caller wants, if they were raised in the specification.
    wanted: Option<Value>,
}

/// Sees whether the host has room for the memory of an image that holds no GPU contents: the container's limits are those
/// that it lived with.
///
/// # Errors
/// [`NoHostMemory`].
pub(crate) fn admit_host(image: &Path, bulk: u64) -> Result<RestoredMemory, NoHostMemory> {
    let bytes = image_bytes(image)?.saturating_add(bulk);
    host_memory::admit_host(bytes)?;
    Ok(RestoredMemory {
        bytes,
        parent: None,
        wanted: None,
    })
}

/// Sees whether the host has room for the memory of an image, `bulk` of it apart from CRIU's files, and makes it in the
/// specification.
///
/// # Errors
/// [`NoHostMemory`]; nothing is changed then.
pub(crate) fn admit(
    engine: &Engine,
    spec: &mut Spec,
    image: &Path,
    bulk: u64,
) -> Result<RestoredMemory, NoHostMemory> {
    let bytes = image_bytes(image)?.saturating_add(bulk);
    let needed = host_memory::admit_host(bytes)?;
    let parent = spec.cgroups_path().and_then(parent_of);
    let raises = engine.settings.memory.raise_limits;
    if let Some(parent) = &parent
        && !raises
    {
        host_memory::check_limits(parent, needed)?;
    }
    let limit = spec
        .tree()
        .pointer(LIMITS)
        .and_then(|limits| limits["limit"].as_u64());
    let wanted = match limit.filter(|limit| *limit > 0 && *limit < needed) {
        None => None,
        Some(limit) if !raises => {
            let file = "the memory limit of the new container".into();
            return Err(NoHostMemory::Limit {
                file,
                limit,
                used: 0,
                needed,
            });
        }
        Some(limit) => raise(spec, limit, needed),
    };
    Ok(RestoredMemory {
        bytes,
        parent,
        wanted,
    })
}

/// Raises the limits of a specification; gives those that it had.
fn raise(spec: &mut Spec, limit: u64, needed: u64) -> Option<Value> {
    let limits = spec.tree_mut().pointer_mut(LIMITS)?;
    let wanted = limits.clone();
    limits["limit"] = json!(needed);
    // The limit with swap keeps its distance; -1 stays "no limit".
    if let Some(swap) = limits["swap"].as_u64() {
        limits["swap"] = json!(swap.saturating_sub(limit).saturating_add(needed));
    }
    Some(wanted)
}

impl RestoredMemory {
    /// Whether the specification was changed.
    pub(crate) fn changed_spec(&self) -> bool {
        self.wanted.is_some()
    }

    /// Makes room below the limits above the container; `directory` is the operation's. Says what was changed.
    ///
    /// # Errors
    /// [`NoHostMemory::Io`].
    pub(crate) fn make_room(
        &self,
        engine: &Engine,
        directory: &Path,
    ) -> Result<Vec<String>, NoHostMemory> {
        let mut notes = Vec::new();
        if let Some(parent) = self
            .parent
            .as_ref()
            .filter(|_| engine.settings.memory.raise_limits)
        {
            let raised = host_memory::make_room(parent, self.bytes, directory)?;
            notes.extend(raised.iter().map(ToString::to_string));
        }
        if self.wanted.is_some() {
            notes.push(
                "the container's memory limit is raised for the time of the restore".to_owned(),
            );
        }
        Ok(notes)
    }

    /// Gives a container that has its GPU contents back on the GPU, and its specification, the limits that the caller wants.
    ///
    /// # Errors
    /// What the low-level runtime said; the container runs on with the raised limits then.
    pub(crate) fn put_back(
        &self,
        engine: &Engine,
        id: &str,
        spec: &Spec,
        directory: &Path,
    ) -> io::Result<()> {
        let Some(wanted) = &self.wanted else {
            return Ok(());
        };
        let file = directory.join("memory-resources.json");
        fs::write(&file, serde_json::to_vec(&json!({ "memory": wanted }))?)?;
        low_level::update(&engine.low_level, &engine.root, id, &file)?;
        spec.write_with(LIMITS, wanted).map_err(io::Error::other)
    }
}

/// What CRIU's page images hold, which is what it will fill (criu.org/Images: "pages-N.img").
fn image_bytes(image: &Path) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for entry in fs::read_dir(image)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("pages-") {
            bytes = bytes.saturating_add(entry.metadata()?.len());
        }
    }
    Ok(bytes)
}

/// The memory cgroup above that of a container with this `cgroupsPath`, if there is one.
fn parent_of(path: &str) -> Option<MemoryCgroup> {
    let parent = MemoryCgroup::below_mount(&parent_path(path)?);
    parent.directory().exists().then_some(parent)
}

/// Either a path, or "slice:prefix:name" for systemd (runc and crun with `--systemd-cgroup`), where a slice
/// "a-b.slice" is in "a.slice" (systemd.slice(5)).
fn parent_path(path: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = match path.split(':').collect::<Vec<_>>()[..] {
        [slice, _, _] => return Some(slice_path(slice.strip_suffix(".slice")?)),
        _ => path.split('/').filter(|part| !part.is_empty()).collect(),
    };
    let (_, above) = parts.split_last()?;
    let is_plain = |part: &&str| *part != "." && *part != "..";
    (parts.len() <= MAX_PARTS && above.iter().all(is_plain)).then(|| above.iter().collect())
}

fn slice_path(slice: &str) -> PathBuf {
    let mut path = PathBuf::new();
    let mut name = String::new();
    for part in slice
        .split('-')
        .filter(|part| !part.is_empty())
        .take(MAX_PARTS)
    {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(part);
        path.push(format!("{name}.slice"));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_above_is_found_in_both_notations() {
        let parent = |path| parent_path(path).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(
            parent("/kubepods/burstable/pod1/c1").as_deref(),
            Some("kubepods/burstable/pod1")
        );
        assert_eq!(parent("/default/c1").as_deref(), Some("default"));
        assert_eq!(parent("c1").as_deref(), Some(""));
        assert_eq!(
            parent("kubepods-burstable-pod1.slice:cri-containerd:c1").as_deref(),
            Some("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice")
        );
        assert_eq!(parent("/a/../../etc/c1"), None);
        assert_eq!(parent("nonsense:a:b"), None);
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
