//! Pods that run, and the containers in them.

use super::container_config::ContainerConfig;
use super::pod_config::PodSandboxConfig;
use super::{Cri, messages};
use crate::client::containerd::Answer;

/// A pod that runs.
#[derive(Debug)]
pub struct Pod<'cri> {
    pub(super) cri: &'cri Cri,
    pub(super) config: PodSandboxConfig,
    /// Its id.
    pub id: String,
    /// The pid in the host of the process that holds its namespaces.
    pub pid: u32,
}

/// A container that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// The pid in the host of its first process; 0 if that has ended.
    pub pid: u32,
}

impl Pod<'_> {
    /// Creates a container in the pod's namespaces; returns its id.
    pub fn create(&self, config: &ContainerConfig) -> Answer<String> {
        let request = messages::CreateContainer {
            pod_sandbox_id: self.id.clone(),
            config: Some(config.clone().within(self.config.namespaces())),
            sandbox_config: Some(self.config.clone()),
        };
        let answer: messages::Id = self
            .cri
            .call("/runtime.v1.RuntimeService/CreateContainer", request)?;
        Ok(answer.id)
    }

    /// Creates a container and starts it.
    pub fn run(&self, config: &ContainerConfig) -> Answer<Container> {
        let id = self.create(config)?;
        let pid = self.cri.start(&id)?;
        Ok(Container { id, pid })
    }

    /// Returns the path of a container's log in the host.
    pub fn log(&self, container: &str) -> String {
        format!("{}/{container}.log", self.config.log_directory)
    }

    /// Stops and removes the pod with all that is in it.
    pub fn remove(self) -> Answer<()> {
        self.cri.remove_pod(&self.id)
    }
}
