//! The configuration of containers: messages of CRI, with the fields that tests use.

use prost::Message;

use super::pod_config::{NAMESPACES, NamespaceOption};
use crate::host::image::Image;
use crate::host::installed::{DEVICES, DRIVER};

/// Names a container in its pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerMetadata {
    /// The container's name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// An image.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ImageSpec {
    /// Its name; or the path of a checkpoint's archive.
    #[prost(string, tag = "1")]
    pub image: String,
}

/// A variable of the environment.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A directory or file of the host in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mount {
    /// Where the container sees it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the host has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether it cannot be written to.
    #[prost(bool, tag = "3")]
    pub readonly: bool,
}

/// A device of the host in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// Where the container sees it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the host has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Its permissions: of r, w and m.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// The configuration of a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    /// Its image.
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    /// Its program and the arguments.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    /// Its environment, beside the image's.
    #[prost(message, repeated, tag = "6")]
    pub envs: Vec<KeyValue>,
    /// The files of the host that it sees.
    #[prost(message, repeated, tag = "7")]
    pub mounts: Vec<Mount>,
    /// Its devices.
    #[prost(message, repeated, tag = "8")]
    pub devices: Vec<Device>,
    /// Its log, in the pod's directory of logs.
    #[prost(string, tag = "11")]
    pub log_path: String,
    /// Its settings on Linux.
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainerConfig>,
}

/// A container's settings on Linux.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LinuxContainerConfig {
    /// Its limits.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<LinuxContainerResources>,
    /// Its namespaces.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxContainerSecurityContext>,
}

/// A container's limits.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LinuxContainerResources {
    /// Bytes of memory.
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
}

/// Holds a container's namespaces.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LinuxContainerSecurityContext {
    /// The namespaces.
    #[prost(message, optional, tag = "3")]
    pub namespace_options: Option<NamespaceOption>,
}

impl ContainerConfig {
    /// Configures a container of the test image.
    #[must_use]
    pub fn new(name: &str, command: &[&str]) -> Self {
        let security_context = LinuxContainerSecurityContext {
            namespace_options: Some(NAMESPACES),
        };
        let config = Self {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
            }),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            log_path: format!("{name}.log"),
            linux: Some(LinuxContainerConfig {
                resources: None,
                security_context: Some(security_context),
            }),
            ..Self::default()
        };
        config.with_image(Image::DEFAULT_NAME)
    }

    /// Takes another image, or a checkpoint's archive.
    #[must_use]
    pub fn with_image(mut self, image: &str) -> Self {
        let image = image.to_owned();
        self.image = Some(ImageSpec { image });
        self
    }

    /// Takes these namespaces.
    #[must_use]
    pub(super) fn within(mut self, namespaces: Option<NamespaceOption>) -> Self {
        self.linux.get_or_insert_default().security_context = Some(LinuxContainerSecurityContext {
            namespace_options: namespaces,
        });
        self
    }

    /// Adds a limit of memory.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: i64) -> Self {
        let limit = LinuxContainerResources {
            memory_limit_in_bytes: bytes,
        };
        self.linux.get_or_insert_default().resources = Some(limit);
        self
    }

    /// Takes this GPU of the stand-in instead of the first.
    #[must_use]
    pub fn on_gpu(mut self, gpu: usize) -> Self {
        for device in &mut self.devices {
            if device.host_path == DEVICES[0] {
                device.host_path = format!("/dev/nvidia{gpu}");
                device.container_path.clone_from(&device.host_path);
            }
        }
        self
    }

    /// Adds the GPU, as a device plugin gives it. Its tag for faults of the stand-in is `tag`.
    #[must_use]
    pub fn with_gpu(mut self, tag: &str) -> Self {
        let libraries = format!("{DRIVER}/lib64");
        let variables = [("LD_LIBRARY_PATH", libraries.as_str()), ("STASIS_TAG", tag)];
        self.envs.extend(variables.map(|(key, value)| KeyValue {
            key: key.to_owned(),
            value: value.to_owned(),
        }));
        self.mounts.push(Mount {
            container_path: DRIVER.to_owned(),
            host_path: DRIVER.to_owned(),
            readonly: true,
        });
        self.devices.extend(DEVICES.map(|path| Device {
            container_path: path.to_owned(),
            host_path: path.to_owned(),
            permissions: "rwm".to_owned(),
        }));
        self
    }
}
