//! The container of an image: by its engine's files beside the image, or by the engine's record of
//! a container that still exists.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::engine::{Engine, Known, podman_name, read};
use crate::locate;

/// The container of an image, as far as it is known.
#[derive(Debug, Default)]
pub struct Whose {
    /// Its id.
    pub id: Option<String>,
    /// Its engine, and its name there.
    pub known: Known,
    /// The image that the container was made from.
    pub container_image: Option<String>,
    /// The container image as the user asked for it.
    pub asked_image: Option<String>,
    /// The container image's digest or id.
    pub image_id: Option<String>,
    /// The engine's name for the runtime.
    pub runtime: Option<String>,
}

/// `config.dump`, which podman, CRI-O and containerd put into an archive, beside the directory of
/// the image (checkpointctl's `metadata.ContainerConfig`).
#[derive(Deserialize)]
struct ConfigDump {
    id: Option<String>,
    name: Option<String>,
    #[serde(rename = "rootfsImageName")]
    image_name: Option<String>,
    #[serde(rename = "rootfsImage")]
    image: Option<String>,
    #[serde(rename = "rootfsImageRef")]
    image_id: Option<String>,
    runtime: Option<String>,
}

/// Docker's record in the directory of a container, which has `checkpoints/NAME` as well.
#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Config")]
    config: DockerImage,
}

#[derive(Deserialize)]
struct DockerImage {
    #[serde(rename = "Image")]
    image: String,
}

/// Returns the name of the container of an image, or its id if no engine knows a name.
pub fn called(image: &Path, container: &str) -> String {
    let name = Whose::of(image, Some(container)).known.name;
    name.unwrap_or_else(|| container.to_owned())
}

impl Whose {
    /// Finds the container of the image in `directory`, whose manifest names `container`. Facts
    /// from missing or malformed files are unknown.
    pub fn of(directory: &Path, container: Option<&str>) -> Self {
        let in_archive = directory.parent().and_then(Self::in_archive);
        let of_docker = || directory.ancestors().nth(2).and_then(Self::of_docker);
        let of_podman = || Self::of_podman(directory.parent()?);
        let found = in_archive.or_else(of_docker).or_else(of_podman);
        let mut whose = found.unwrap_or_default();
        if whose.id.is_none() {
            whose.id = container.map(str::to_owned);
        }
        if whose.known == Known::default()
            && let Some(located) = container.and_then(|id| locate(id, None).ok())
        {
            whose.known = located.known();
        }
        whose
    }

    fn in_archive(parent: &Path) -> Option<Self> {
        let config: ConfigDump = read(&parent.join("config.dump"))?;
        let spec: Option<Value> = read(&parent.join("spec.dump"));
        let by_spec = spec.and_then(|spec| Known::recorded(&spec, config.name.clone()));
        Some(Self {
            id: config.id,
            known: by_spec.unwrap_or(Known {
                engine: None,
                name: config.name,
            }),
            container_image: config.image_name.or_else(|| config.image.clone()),
            asked_image: config.image,
            image_id: config.image_id,
            runtime: config.runtime,
        })
    }

    /// podman's list of containers, beside the directories of the containers; the image is in a
    /// container's `userdata`, also once the container has ended.
    fn of_podman(userdata: &Path) -> Option<Self> {
        let id = userdata.parent()?.file_name()?.to_str()?;
        let name = podman_name(id, userdata)?;
        Some(Self {
            id: Some(id.to_owned()),
            known: Known {
                engine: Some(Engine::Podman),
                name: Some(name),
            },
            ..Self::default()
        })
    }

    fn of_docker(container: &Path) -> Option<Self> {
        let config: DockerConfig = read(&container.join("config.v2.json"))?;
        Some(Self {
            id: Some(config.id),
            known: Known {
                engine: Some(Engine::Docker),
                name: Some(config.name.trim_start_matches('/').to_owned()),
            },
            container_image: Some(config.config.image),
            ..Self::default()
        })
    }
}
