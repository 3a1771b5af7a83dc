//! What containers of pods are to be.

use super::messages;
use super::messages::{ContainerConfig, ContainerMetadata};
use super::pod::NAMESPACES;
use crate::image::Image;
use crate::lab::{DEVICES, DRIVER};

impl ContainerConfig {
    /// A container of the test image.
    #[must_use]
    pub fn new(name: &str, command: &[&str]) -> Self {
        let security_context = messages::LinuxContainerSecurityContext {
            namespace_options: Some(NAMESPACES),
        };
        let config = Self {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
            }),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            log_path: format!("{name}.log"),
            linux: Some(messages::LinuxContainerConfig {
                resources: None,
                security_context: Some(security_context),
            }),
            ..Self::default()
        };
        config.with_image(Image::DEFAULT_NAME)
    }

    /// The same from another image, or from a checkpoint's archive.
    #[must_use]
    pub fn with_image(mut self, image: &str) -> Self {
        let image = image.to_owned();
        self.image = Some(messages::ImageSpec { image });
        self
    }

    /// The same with a limit of memory.
    #[must_use]
    pub fn with_memory_limit(mut self, bytes: i64) -> Self {
        let limit = messages::LinuxContainerResources {
            memory_limit_in_bytes: bytes,
        };
        self.linux.get_or_insert_default().resources = Some(limit);
        self
    }

    /// The same with the GPU, as a device plugin gives it. Its tag for faults of the stand-in is `tag`.
    #[must_use]
    pub fn with_gpu(mut self, tag: &str) -> Self {
        let libraries = format!("{DRIVER}/lib64");
        let variables = [("LD_LIBRARY_PATH", libraries.as_str()), ("STASIS_TAG", tag)];
        self.envs
            .extend(variables.map(|(key, value)| messages::KeyValue {
                key: key.to_owned(),
                value: value.to_owned(),
            }));
        self.mounts.push(messages::Mount {
            container_path: DRIVER.to_owned(),
            host_path: DRIVER.to_owned(),
            readonly: true,
        });
        self.devices.extend(DEVICES.map(|path| messages::Device {
            container_path: path.to_owned(),
            host_path: path.to_owned(),
            permissions: "rwm".to_owned(),
        }));
        self
    }
}
