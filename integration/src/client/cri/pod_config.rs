//! The configuration of pods: messages of CRI, with the fields that tests use.

use std::collections::BTreeMap;

use prost::Message;

/// Namespaces of a pod or a container: 0 is the pod's, 1 a container's own, 2 the host's.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NamespaceOption {
    /// The network.
    #[prost(int32, tag = "1")]
    pub network: i32,
    /// Process ids.
    #[prost(int32, tag = "2")]
    pub pid: i32,
    /// Users.
    #[prost(message, optional, tag = "5")]
    pub users: Option<UserNamespace>,
}

/// A user namespace (`hostUsers: false`).
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UserNamespace {
    /// 0 is the pod's, 2 the host's.
    #[prost(int32, tag = "1")]
    pub mode: i32,
    /// Its users.
    #[prost(message, repeated, tag = "2")]
    pub users: Vec<IdMapping>,
    /// Its groups.
    #[prost(message, repeated, tag = "3")]
    pub groups: Vec<IdMapping>,
}

/// Users or groups of the host, and their ids in a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct IdMapping {
    /// The first on the host.
    #[prost(uint32, tag = "1")]
    pub host: u32,
    /// The first in the namespace.
    #[prost(uint32, tag = "2")]
    pub inside: u32,
    /// Their number.
    #[prost(uint32, tag = "3")]
    pub length: u32,
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

/// The configuration of a pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodSandboxConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// The directory of the logs of its containers.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "7")]
    pub annotations: BTreeMap<String, String>,
    /// Its settings on Linux.
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
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxSandboxSecurityContext {
    /// The namespaces.
    #[prost(message, optional, tag = "1")]
    pub namespace_options: Option<NamespaceOption>,
}

/// The kubelet's default: process ids are each container's own (1). The network is the host's (2):
/// test hosts have no network plugins.
pub(super) const NAMESPACES: NamespaceOption = NamespaceOption {
    network: 2,
    pid: 1,
    users: None,
};
/// The host's user that is root in the user namespaces of pods that have one.
const ROOT: u32 = 100_000;

/// Returns namespaces with the pod's own network and users.
fn of_its_own() -> NamespaceOption {
    let all = vec![IdMapping {
        host: ROOT,
        inside: 0,
        length: 65536,
    }];
    NamespaceOption {
        network: 0,
        users: Some(UserNamespace {
            mode: 0,
            users: all.clone(),
            groups: all,
        }),
        ..NAMESPACES
    }
}

impl PodSandboxConfig {
    pub(super) fn on_host_network(name: &str) -> Self {
        Self::within(name, NAMESPACES)
    }

    pub(super) fn annotated(name: &str, annotations: &[(&str, &str)]) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self {
            annotations: annotations.iter().map(owned).collect(),
            ..Self::on_host_network(name)
        }
    }

    pub(super) fn in_a_user_namespace(name: &str) -> Self {
        Self::within(name, of_its_own())
    }

    fn within(name: &str, namespaces: NamespaceOption) -> Self {
        let security_context = LinuxSandboxSecurityContext {
            namespace_options: Some(namespaces),
        };
        Self {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "default".to_owned(),
            }),
            log_directory: format!("/var/log/pods/{name}"),
            annotations: BTreeMap::new(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/kubepods/pod-{name}"),
                security_context: Some(security_context),
            }),
        }
    }

    pub(super) fn namespaces(&self) -> Option<NamespaceOption> {
        let context = self.linux.as_ref()?.security_context.as_ref()?;
        context.namespace_options.clone()
    }
}
