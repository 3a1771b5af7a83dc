//! Host memory for a restore: CRIU restores the GPU contents as memory of the new container's
//! processes, where they stay until the driver has moved them to the GPU.
//!
//! The low-level runtime makes the container's cgroup and CRIU fills it in one step. So the
//! container's own limit is raised in the specification, and set to the caller's value afterwards
//! with the low-level runtime's `update`, which also records it. Limits of the cgroups above are
//! raised in place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stasis_linux::cgroup::{Hierarchies, cgroups_path};

use crate::container::host_memory::{self, NoHostMemory};
use crate::container::memory_limit::MemoryCgroup;
use crate::container::spec::Spec;
use crate::context::Context;
use crate::low_level;

/// The limits in `config.json` (OCI runtime specification, "memory").
const LIMITS: &str = "/linux/resources/memory";

/// The memory that a restore needs, and the limits that were changed for it.
#[derive(Debug)]
pub(crate) struct RestoredMemory {
    /// All memory that the image holds, in bytes.
    bytes: u64,
    /// The parent of the container's cgroup.
    parent: Option<MemoryCgroup>,
    /// The caller's limits, if they were raised in the specification.
    wanted: Option<Value>,
}

/// Checks that the host has enough memory for an image without GPU contents. The container's limits
/// suffice, since it ran with them.
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

/// Checks that the host has enough memory for an image, of which `bulk` bytes are not in CRIU's
/// files, and raises the limits in the specification.
///
/// # Errors
/// [`NoHostMemory`]; nothing is changed then.
pub(crate) fn admit(
    context: &Context,
    spec: &mut Spec,
    image: &Path,
    bulk: u64,
) -> Result<RestoredMemory, NoHostMemory> {
    let bytes = image_bytes(image)?.saturating_add(bulk);
    let needed = host_memory::admit_host(bytes)?;
    let parent = match spec.cgroups_path() {
        Some(path) => parent_of(path)?,
        None => None,
    };
    let raises = context.settings.memory.raise_limits;
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

/// Raises the limits of a specification, and returns the former limits.
fn raise(spec: &mut Spec, limit: u64, needed: u64) -> Option<Value> {
    let limits = spec.tree_mut().pointer_mut(LIMITS)?;
    let wanted = limits.clone();
    limits["limit"] = json!(needed);
    // The limit with swap is raised by the same amount; -1 stays "no limit".
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

    /// Raises the memory limits above the container; `directory` is the operation's. Returns a note
    /// for each change.
    ///
    /// # Errors
    /// [`NoHostMemory::Io`].
    pub(crate) fn raise_limits(
        &self,
        context: &Context,
        directory: &Path,
    ) -> Result<Vec<String>, NoHostMemory> {
        let mut notes = Vec::new();
        if let Some(parent) = self
            .parent
            .as_ref()
            .filter(|_| context.settings.memory.raise_limits)
        {
            let raised = host_memory::raise_limits(parent, self.bytes, directory)?;
            notes.extend(raised.iter().map(ToString::to_string));
        }
        if self.wanted.is_some() {
            notes.push(
                "the container's memory limit is raised for the time of the restore".to_owned(),
            );
        }
        Ok(notes)
    }

    /// Sets the caller's limits in the container and its specification, once the GPU contents are
    /// back on the GPU.
    ///
    /// # Errors
    /// The low-level runtime's error; the container continues with the raised limits.
    pub(crate) fn put_back(
        &self,
        context: &Context,
        id: &str,
        spec: &Spec,
        directory: &Path,
    ) -> io::Result<()> {
        let Some(wanted) = &self.wanted else {
            return Ok(());
        };
        let file = directory.join("memory-resources.json");
        fs::write(&file, serde_json::to_vec(&json!({ "memory": wanted }))?)?;
        low_level::update(&context.low_level, &context.root, id, &file)?;
        spec.write_with(LIMITS, wanted).map_err(io::Error::other)
    }
}

/// The size of CRIU's page images, which CRIU will restore (criu.org/Images: "pages-N.img").
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

/// The parent of the memory cgroup of a container with this `cgroupsPath`, if there is one.
fn parent_of(path: &str) -> io::Result<Option<MemoryCgroup>> {
    let Some(parent) = parent_path(path) else {
        return Ok(None);
    };
    let cgroup = Hierarchies::read()?.cgroup("memory", &parent);
    let exists = cgroup.filter(|cgroup| cgroup.directory().exists());
    Ok(exists.map(MemoryCgroup::new))
}

fn parent_path(path: &str) -> Option<PathBuf> {
    // crun takes a relative path from the root of the hierarchy.
    let path = match path.starts_with('/') || path.contains(':') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    Some(cgroups_path(&path)?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_above_is_found_in_both_notations() {
        let parent = |path| parent_path(path).map(|path| path.to_string_lossy().into_owned());
        assert_eq!(
            parent("/kubepods/burstable/pod1/c1").as_deref(),
            Some("/kubepods/burstable/pod1")
        );
        assert_eq!(parent("/default/c1").as_deref(), Some("/default"));
        assert_eq!(parent("c1").as_deref(), Some("/"));
        assert_eq!(
            parent("kubepods-burstable-pod1.slice:cri-containerd:c1").as_deref(),
            Some("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice")
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
