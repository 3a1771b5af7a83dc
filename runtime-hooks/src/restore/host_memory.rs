//! Host memory for a restore: CRIU restores the GPU contents as memory of the new container's
//! processes, where they stay until the driver has moved them to the GPU.
//!
//! The low-level runtime makes the container's cgroup and CRIU fills it in one step. So the
//! container's own limits are raised in the specification, and set to the caller's values
//! afterwards with the low-level runtime's `update`, which also records them. Limits of the cgroups
//! above are never changed.

use std::fs;
use std::io;
use std::path::Path;

use stasis_linux::cgroup::{Hierarchies, cgroups_path};

use crate::container::host_memory::{self, HostRoom, NoHostMemory};
use crate::container::memory_limit::raised_spec::RaisedSpec;
use crate::container::memory_limit::{self, MemoryCgroup};
use crate::container::spec::Spec;
use crate::context::Context;
use crate::image::files::ImageFile;
use crate::low_level;

/// The memory that a restore needs, and the limits that are raised for it.
#[derive(Debug)]
pub(crate) struct RestoredMemory {
    /// The cgroup that the new container will have, if the specification names it.
    cgroup: Option<MemoryCgroup>,
    /// The limits that are raised in the specification.
    raised: Option<RaisedSpec>,
}

/// Checks that the host has enough memory for an image none of whose GPU contents become memory of
/// the container. The container's limits suffice, since it ran with them.
///
/// # Errors
/// [`NoHostMemory`].
pub(crate) fn admit_host(
    room: HostRoom<'_>,
    image: &Path,
    bulk: u64,
) -> Result<RestoredMemory, NoHostMemory> {
    host_memory::admit_host(room, image_bytes(image)?.saturating_add(bulk))?;
    Ok(RestoredMemory {
        cgroup: None,
        raised: None,
    })
}

/// Checks that the host, and the cgroups above the new container's, have enough memory for an image
/// of which `bulk` bytes are not in CRIU's files, and raises the container's own limits in the
/// specification, which is not written yet.
///
/// # Errors
/// [`NoHostMemory`]; nothing is changed then.
pub(crate) fn admit(
    context: &Context,
    room: HostRoom<'_>,
    bundle: &Path,
    spec: &mut Spec,
    image: &Path,
    bulk: u64,
) -> Result<RestoredMemory, NoHostMemory> {
    let bytes = image_bytes(image)?.saturating_add(bulk);
    let needed = host_memory::admit_host(room, bytes)?;
    let cgroup = match spec.cgroups_path() {
        Some(path) => cgroup_at(path)?,
        None => None,
    };
    if let Some(cgroup) = &cgroup {
        host_memory::check_limits_above(cgroup, needed)?;
    }
    if !context.settings.memory.raise_limits {
        refuse_tight(bundle, spec, bytes)?;
        let raised = None;
        return Ok(RestoredMemory { cgroup, raised });
    }
    let raised = RaisedSpec::of(bundle, spec, needed);
    if let Some(raised) = &raised {
        raised.apply(spec);
    }
    Ok(RestoredMemory { cgroup, raised })
}

/// Refuses a container whose own limits cannot hold so many bytes. Nothing is asked for beside
/// them: with these limits it was checkpointed.
fn refuse_tight(bundle: &Path, spec: &Spec, bytes: u64) -> Result<(), NoHostMemory> {
    let Some(tight) = RaisedSpec::of(bundle, spec, bytes) else {
        return Ok(());
    };
    let (name, limit) = tight.lowest();
    Err(NoHostMemory::Limit {
        file: format!("the memory limit of the new container ({name})").into(),
        limit,
        used: 0,
        needed: bytes,
    })
}

impl RestoredMemory {
    /// Whether the specification was changed.
    pub(crate) fn changed_spec(&self) -> bool {
        self.raised.is_some()
    }

    /// Records in the operation's directory which limits are about to be raised. Returns a note
    /// about it.
    ///
    /// # Errors
    /// [`NoHostMemory::Io`].
    pub(crate) fn record(&self, directory: &Path) -> Result<Option<&'static str>, NoHostMemory> {
        let Some(raised) = &self.raised else {
            return Ok(None);
        };
        raised.record(self.cgroup.as_ref(), directory)?;
        Ok(Some(
            "the container's memory limit is raised for the time of the restore",
        ))
    }

    /// Sets the caller's limits in the container and its specification, once the GPU contents are
    /// back on the GPU and no longer charged to it. `checkBeforeUpdate` of the low-level runtime
    /// does not serve: it counts the file cache of the image that CRIU has just read.
    ///
    /// # Errors
    /// More is in use, or the low-level runtime's error; the container continues with the raised
    /// limits, which stay recorded.
    pub(crate) fn put_back(
        &self,
        context: &Context,
        id: &str,
        spec: &Spec,
        directory: &Path,
    ) -> io::Result<()> {
        let Some(raised) = &self.raised else {
            return Ok(());
        };
        // Also of a container whose cgroup the specification does not name.
        if let Ok(Some(container)) = context.container(id) {
            raised.record(Some(container.memory()), directory)?;
        }
        memory_limit::wait_until_fitting(directory)?;
        let file = directory.join("memory-resources.json");
        fs::write(&file, serde_json::to_vec(&raised.resources(spec))?)?;
        let limit = context.settings.deadlines.stalled();
        low_level::update(&context.low_level, &context.root, id, &file, limit)?;
        memory_limit::put_back(directory)
    }
}

/// The size of CRIU's page images, which CRIU will restore (criu.org/Images: "pages-N.img").
///
/// # Errors
/// They cannot be read.
pub(crate) fn image_bytes(image: &Path) -> io::Result<u64> {
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
