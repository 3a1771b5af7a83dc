//! Which engine a container belongs to, and its name there: from its specification and the engine's
//! own files, so that no daemon is asked.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stasis_engine::container::Container;
use stasis_engine::container::spec::Spec;
use stasis_lifecycle::pod;
use stasis_linux::file;

use super::roots::{CONTAINERD, DOCKER};

/// Real lists of podman's have some KiB for each container.
const MAX_BYTES: u64 = 64 << 20;
/// podman's directory for `podman run --rm` (containers/storage, `volatile-containers.json`).
const PODMAN_RUN_ROOT: &str = "/run/containers/storage";
/// The namespace in which Docker keeps its containers with containerd.
const MOBY: &str = "moby";

/// An engine that has started a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// containerd, by way of ctr or another client.
    Containerd,
    /// containerd, by way of nerdctl.
    Nerdctl,
    /// containerd, for Kubernetes.
    Cri,
    /// CRI-O.
    CriO,
    /// Docker.
    Docker,
    /// podman.
    Podman,
}

/// A container as people know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Its engine; `None` if a user called the low-level runtime by hand.
    pub engine: Option<Engine>,
    /// Its name; in Kubernetes "namespace/pod/container".
    pub name: Option<String>,
}

/// An entry of podman's list of containers.
#[derive(Deserialize)]
struct Stored {
    id: String,
    #[serde(default)]
    names: Vec<String>,
}

/// Docker's own record of a container.
#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Name")]
    name: String,
}

impl Known {
    /// Finds the engine and the name of a running container. Unreadable facts are unknown.
    #[must_use]
    pub fn of(container: &Container, root: &Path) -> Self {
        let spec = container.spec();
        let podman = || podman_name(container.id(), container.bundle()?);
        let annotated = |spec: &Spec| annotated(|name| spec.annotation(name), podman);
        let by_annotations = spec.as_ref().and_then(annotated);
        by_annotations.unwrap_or_else(|| by_root(root, spec.as_ref()))
    }

    /// Finds the engine and the name of a container in the specification that its engine put beside
    /// an image, and the name that it recorded there.
    #[must_use]
    pub(crate) fn recorded(spec: &Value, name: Option<String>) -> Option<Self> {
        let annotations = spec.get("annotations")?;
        annotated(|name| annotations.get(name)?.as_str(), || name)
    }
}

/// Reads the annotations of CRI plugins, of nerdctl, and of engines that call a low-level runtime
/// directly.
fn annotated<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
    podman: impl FnOnce() -> Option<String>,
) -> Option<Known> {
    if annotation(pod::CONTAINERD.kind).is_some() {
        return Some(Known {
            engine: Some(Engine::Cri),
            name: pod::CONTAINERD.whole_name(annotation),
        });
    }
    match annotation("io.container.manager") {
        Some("cri-o") => Some(Known {
            engine: Some(Engine::CriO),
            name: pod::CRI_O.whole_name(annotation),
        }),
        Some("libpod") => Some(Known {
            engine: Some(Engine::Podman),
            name: podman(),
        }),
        _ => annotation("nerdctl/name").map(|name| Known {
            engine: Some(Engine::Nerdctl),
            name: Some(name.to_owned()),
        }),
    }
}

fn by_root(root: &Path, spec: Option<&Spec>) -> Known {
    let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let is_containerd = root.starts_with(CONTAINERD);
    if root.starts_with(DOCKER) || is_containerd && root.ends_with(MOBY) {
        return Known {
            engine: Some(Engine::Docker),
            name: spec.and_then(docker_name),
        };
    }
    Known {
        engine: is_containerd.then_some(Engine::Containerd),
        name: None,
    }
}

/// Finds the name in podman's storage, which has a list of containers beside their directories, of
/// which the bundle is one (`STORAGE/DRIVER-containers/ID/userdata`).
pub(crate) fn podman_name(id: &str, bundle: &Path) -> Option<String> {
    let all = bundle.parent()?.parent()?;
    let volatile = Path::new(PODMAN_RUN_ROOT).join(all.file_name()?);
    let lists = [
        all.join("containers.json"),
        volatile.join("volatile-containers.json"),
    ];
    lists.iter().find_map(|list| {
        let stored: Vec<Stored> = read(list)?;
        let mut stored = stored.into_iter();
        let own = stored.find(|stored| stored.id == id)?;
        own.names.into_iter().next()
    })
}

/// Finds the name in Docker's record, beside the files that Docker mounts into the container.
fn docker_name(spec: &Spec) -> Option<String> {
    let mut binds = spec.binds();
    let hostname = binds.find(|bind| bind.destination == "/etc/hostname")?;
    let config = Path::new(hostname.source).with_file_name("config.v2.json");
    let config: DockerConfig = read(&config)?;
    Some(config.name.trim_start_matches('/').to_owned())
}

/// Reads a file of an engine, if it can.
pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let text = file::read(path, MAX_BYTES).ok()??;
    serde_json::from_slice(&text).ok()
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn spec(directory: &Path, tree: &serde_json::Value) -> Spec {
        fs::write(directory.join("config.json"), tree.to_string()).unwrap();
        Spec::read(directory).unwrap()
    }

    #[test]
    fn annotations_tell_the_engine_and_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let known = |annotations: serde_json::Value| {
            let tree = serde_json::json!({ "annotations": annotations });
            let spec = spec(directory.path(), &tree);
            annotated(
                |name| spec.annotation(name),
                || Some("of-podman".to_owned()),
            )
            .map(|known| (known.engine, known.name))
        };
        let expected = |engine, name: Option<&str>| Some((Some(engine), name.map(str::to_owned)));
        let cri = serde_json::json!({
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.sandbox-namespace": "ml",
            "io.kubernetes.cri.sandbox-name": "train-0",
            "io.kubernetes.cri.container-name": "main",
        });
        assert_eq!(known(cri), expected(Engine::Cri, Some("ml/train-0/main")));
        let sandbox = serde_json::json!({ "io.kubernetes.cri.container-type": "sandbox" });
        assert_eq!(known(sandbox), expected(Engine::Cri, None));
        let crio = serde_json::json!({
            "io.container.manager": "cri-o",
            "io.kubernetes.pod.namespace": "ml",
            "io.kubernetes.pod.name": "train-0",
            "io.kubernetes.container.name": "main",
        });
        assert_eq!(known(crio), expected(Engine::CriO, Some("ml/train-0/main")));
        let podman = serde_json::json!({ "io.container.manager": "libpod" });
        assert_eq!(known(podman), expected(Engine::Podman, Some("of-podman")));
        let nerdctl = serde_json::json!({ "nerdctl/name": "job" });
        assert_eq!(known(nerdctl), expected(Engine::Nerdctl, Some("job")));
        assert_eq!(known(serde_json::json!({})), None);
    }

    #[test]
    fn podman_and_docker_have_files_with_the_names() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = directory.path().join("c1/userdata");
        fs::create_dir_all(&bundle).unwrap();
        assert_eq!(podman_name("c1", &bundle), None);
        let list = r#"[{"id": "c0"}, {"id": "c1", "names": ["job", "other"], "more": 1}]"#;
        fs::write(directory.path().join("containers.json"), list).unwrap();
        assert_eq!(podman_name("c1", &bundle), Some("job".to_owned()));
        assert_eq!(podman_name("c0", &bundle), None);

        let hostname = directory.path().join("hostname");
        let tree = serde_json::json!({ "mounts": [
            { "type": "bind", "source": hostname, "destination": "/etc/hostname" },
        ]});
        let spec = spec(directory.path(), &tree);
        assert_eq!(docker_name(&spec), None);
        let config = directory.path().join("config.v2.json");
        fs::write(config, r#"{"Name": "/job", "State": {}}"#).unwrap();
        assert_eq!(docker_name(&spec), Some("job".to_owned()));
    }
}
