//! Pods that run, and the messages of CRI that say what they are to be.

use prost::Message;

use super::container::ContainerConfig;
use super::{Cri, messages};
use crate::containerd::Answer;

/// Namespaces of a pod or a container: 0 is the pod's, 1 a container's own, 2 the host's.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct NamespaceOption {
    /// The network.
    #[prost(int32, tag = "1")]
    pub network: i32,
    /// Process ids.
    #[prost(int32, tag = "2")]
    pub pid: i32,
}

/// Names a pod; all of it is unique on a node.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodSandboxMetadata {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its uid in Kubernetes.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its namespace in Kubernetes.
    #[prost(string, tag = "3")]
    pub namespace: String,
}

/// What a pod is to be.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodSandboxConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Where the logs of its containers go.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// What Linux makes of it.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

/// The pod's settings on Linux.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxPodSandboxConfig {
    /// The pod's cgroup.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
    /// Its namespaces.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxSandboxSecurityContext>,
}

/// Holds the pod's namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct LinuxSandboxSecurityContext {
    /// The namespaces.
    #[prost(message, optional, tag = "1")]
    pub namespace_options: Option<NamespaceOption>,
}

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
