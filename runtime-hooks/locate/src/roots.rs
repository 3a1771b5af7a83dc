//! The roots of this machine's low-level runtimes, found on disk: no engine is asked.

use std::fs;
use std::path::{Path, PathBuf};

use stasis_config::Flavor;

/// CRI-O's containers of the handler that `stasis setup crio` writes.
pub const CRI_O: &str = "/run/stasis-crio";
/// The defaults of runc and crun, which podman and CRI-O's own handlers also use, and ours.
const ROOTS: [&str; 3] = ["/run/runc", "/run/crun", CRI_O];
/// containerd has one root for each namespace.
pub(crate) const CONTAINERD: &str = "/run/containerd/runc";
/// Docker has a directory for each runtime, and in it one root for each namespace.
pub(crate) const DOCKER: &str = "/run/docker";
const DOCKER_RUNTIME: &str = "runtime-";

/// A container below a root, whether it runs or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLocation {
    /// The root of its low-level runtime.
    pub root: PathBuf,
    /// Its id.
    pub id: String,
    /// The low-level runtime that made it.
    pub flavor: Flavor,
}

/// Returns `root`, or all usual roots.
pub fn roots(root: Option<&Path>) -> Vec<PathBuf> {
    root.map_or_else(usual_roots, |root| vec![root.to_owned()])
}

fn usual_roots() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ROOTS.iter().map(PathBuf::from).collect();
    roots.extend(children(Path::new(CONTAINERD)));
    let runtimes = children(Path::new(DOCKER)).into_iter().filter(|path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(DOCKER_RUNTIME)
    });
    roots.extend(runtimes.flat_map(|runtime| children(&runtime)));
    roots
}

/// Returns the containers below all of these roots.
pub fn places(roots: &[PathBuf]) -> Vec<ContainerLocation> {
    let mut found = Vec::new();
    for root in roots {
        for directory in children(root) {
            let id = directory.file_name().and_then(|name| name.to_str());
            let (Some(id), Some(flavor)) = (id, flavor_of(&directory)) else {
                continue;
            };
            found.push(ContainerLocation {
                root: root.clone(),
                id: id.to_owned(),
                flavor,
            });
        }
    }
    found
}

/// Returns the low-level runtime that wrote a container's directory.
fn flavor_of(directory: &Path) -> Option<Flavor> {
    if directory.join("state.json").is_file() {
        return Some(Flavor::Runc);
    }
    let is_crun = directory.join("status").is_file();
    is_crun.then_some(Flavor::Crun)
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.sort_unstable();
    paths
}
