//! The configuration of pods: messages of CRI, with the fields that tests use.

use std::collections::BTreeMap;

messages! {
    /// Namespaces of a pod or a container: 0 is the pod's, 1 a container's own, 2 the host's.
    pub struct NamespaceOption {
        network: i32 = 1 (int32),
        pid: i32 = 2 (int32),
        users: Option<UserNamespace> = 5 (message, optional),
    }

    /// A user namespace (`hostUsers: false`).
    pub struct UserNamespace {
        /// 0 is the pod's, 2 the host's.
        mode: i32 = 1 (int32),
        /// Its users.
        users: Vec<IdMapping> = 2 (message, repeated),
        /// Its groups.
        groups: Vec<IdMapping> = 3 (message, repeated),
    }

    /// Users or groups of the host, and their ids in a namespace.
    pub struct IdMapping {
        /// The first on the host.
        host: u32 = 1 (uint32),
        /// The first in the namespace.
        inside: u32 = 2 (uint32),
        /// Their number.
        length: u32 = 3 (uint32),
    }

    /// Names a pod; all of it is unique on a node.
    pub(super) struct PodSandboxMetadata {
        name: String = 1 (string),
        uid: String = 2 (string),
        namespace: String = 3 (string),
    }

    /// The configuration of a pod.
    pub(super) struct PodSandboxConfig {
        metadata: Option<PodSandboxMetadata> = 1 (message, optional),
        log_directory: String = 3 (string),
        annotations: BTreeMap<String, String> = 7 (btree_map = "string, string"),
        linux: Option<LinuxPodSandboxConfig> = 8 (message, optional),
    }

    /// The pod's settings on Linux.
    pub(super) struct LinuxPodSandboxConfig {
        cgroup_parent: String = 1 (string),
        security_context: Option<LinuxSandboxSecurityContext> = 2 (message, optional),
    }

    /// Holds the pod's namespaces.
    pub(super) struct LinuxSandboxSecurityContext {
        namespace_options: Option<NamespaceOption> = 1 (message, optional),
    }
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
