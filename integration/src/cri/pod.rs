//! Pods that run.

use super::Cri;
use super::messages::{
    self, ContainerConfig, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata,
};
use crate::containerd::Answer;

/// As the kubelet asks for: process ids are each container's own (1). The network is the host's (2):
/// test hosts have no network plugins.
pub(super) const NAMESPACES: NamespaceOption = NamespaceOption { network: 2, pid: 1 };

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
    /// Creates a container; its id.
    pub fn create(&self, config: &ContainerConfig) -> Answer<String> {
        let request = messages::CreateContainer {
            pod_sandbox_id: self.id.clone(),
            config: Some(config.clone()),
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

    /// Where the host has the log of a container.
    #[must_use]
    pub fn log(&self, container: &str) -> String {
        format!("{}/{container}.log", self.config.log_directory)
    }

    /// Stops and removes the pod with all that is in it.
    pub fn remove(self) -> Answer<()> {
        self.cri.remove_pod(&self.id)
    }
}

impl PodSandboxConfig {
    pub(super) fn on_host_network(name: &str) -> Self {
        let security_context = LinuxSandboxSecurityContext {
            namespace_options: Some(NAMESPACES),
        };
        Self {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "default".to_owned(),
            }),
            log_directory: format!("/var/log/pods/{name}"),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/kubepods/pod-{name}"),
                security_context: Some(security_context),
            }),
        }
    }
}
