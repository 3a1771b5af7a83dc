//! The configuration of containers: messages of CRI, with the fields that tests use.

use super::pod_config::{NAMESPACES, NamespaceOption};
use crate::host::image::Image;
use crate::host::installed::{DEVICES, DRIVER};

messages! {
    /// Names a container in its pod.
    pub struct ContainerMetadata {
        name: String = 1 (string),
    }

    /// An image.
    pub struct ImageSpec {
        /// Its name; or the path of a checkpoint's archive.
        image: String = 1 (string),
    }

    /// A variable of the environment.
    pub struct KeyValue {
        key: String = 1 (string),
        value: String = 2 (string),
    }

    /// A directory or file of the host in a container.
    pub struct Mount {
        container_path: String = 1 (string),
        host_path: String = 2 (string),
        readonly: bool = 3 (bool),
    }

    /// A device of the host in a container.
    pub struct Device {
        container_path: String = 1 (string),
        host_path: String = 2 (string),
        permissions: String = 3 (string),
    }

    /// The configuration of a container.
    pub struct ContainerConfig {
        /// Its name.
        metadata: Option<ContainerMetadata> = 1 (message, optional),
        /// Its image.
        image: Option<ImageSpec> = 2 (message, optional),
        /// Its program and the arguments.
        command: Vec<String> = 3 (string, repeated),
        /// Its environment, beside the image's.
        envs: Vec<KeyValue> = 6 (message, repeated),
        /// The files of the host that it sees.
        mounts: Vec<Mount> = 7 (message, repeated),
        /// Its devices.
        devices: Vec<Device> = 8 (message, repeated),
        /// Its log, in the pod's directory of logs.
        log_path: String = 11 (string),
        /// Its settings on Linux.
        linux: Option<LinuxContainerConfig> = 15 (message, optional),
    }

    /// A container's settings on Linux.
    pub struct LinuxContainerConfig {
        resources: Option<LinuxContainerResources> = 1 (message, optional),
        security_context: Option<LinuxContainerSecurityContext> = 2 (message, optional),
    }

    /// A container's limits.
    pub struct LinuxContainerResources {
        memory_limit_in_bytes: i64 = 4 (int64),
    }

    /// Holds a container's namespaces.
    pub struct LinuxContainerSecurityContext {
        namespace_options: Option<NamespaceOption> = 3 (message, optional),
    }
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
