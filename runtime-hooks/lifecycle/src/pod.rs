//! An engine's annotations about the pod that a container belongs to.
//!
//! containerd's CRI plugin and CRI-O set these annotations after copying the pod's own, so the
//! pod's author cannot set them.

use std::path::{Path, PathBuf};

use stasis_engine::container::spec::Spec;

/// The names of an engine's annotations.
#[derive(Debug, PartialEq, Eq)]
pub struct Annotations {
    /// The container's kind in its pod.
    pub kind: &'static str,
    /// The pod's namespace.
    pub(crate) namespace: &'static str,
    /// The pod.
    pub(crate) pod: &'static str,
    /// The container in it.
    pub(crate) container: &'static str,
}

/// The annotations of containerd's CRI plugin.
pub const CONTAINERD: Annotations = Annotations {
    kind: "io.kubernetes.cri.container-type",
    namespace: "io.kubernetes.cri.sandbox-namespace",
    pod: "io.kubernetes.cri.sandbox-name",
    container: "io.kubernetes.cri.container-name",
};
/// The annotations of CRI-O.
pub const CRI_O: Annotations = Annotations {
    kind: "io.kubernetes.cri-o.ContainerType",
    namespace: "io.kubernetes.pod.namespace",
    pod: "io.kubernetes.pod.name",
    container: "io.kubernetes.container.name",
};
/// The annotations of every engine that has pods.
pub(crate) const ALL: [Annotations; 2] = [CONTAINERD, CRI_O];
/// The kind of the container that only holds the pod's namespaces.
const SANDBOX: &str = "sandbox";

/// The pod's namespace of a container is not known.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the annotations of the container name no namespace, or two, for its pod")]
pub struct NoNamespace;

impl Annotations {
    /// The container as people know it, `NAMESPACE/POD/CONTAINER`.
    pub fn whole_name<'a>(&self, annotation: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let parts = [self.namespace, self.pod, self.container].map(annotation);
        let parts: Option<Vec<&str>> = parts.into_iter().collect();
        parts.map(|parts| parts.join("/"))
    }
}

/// The directory below `all` of the images that a container may name: its pod's namespace.
pub(crate) fn directory_in(all: &Path, spec: &Spec) -> Result<PathBuf, NoNamespace> {
    let namespace = namespace_of(spec)?;
    Ok(namespace.map_or_else(|| all.to_owned(), |namespace| all.join(namespace)))
}

/// Returns the namespace of the pod that a container is in; `None`: it is in no pod.
pub(crate) fn namespace_of(spec: &Spec) -> Result<Option<&str>, NoNamespace> {
    let mut said = ALL
        .iter()
        .filter_map(|names| spec.annotation(names.namespace));
    let Some(namespace) = said.next() else {
        return Ok(None);
    };
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_name = !namespace.is_empty() && namespace.bytes().all(known);
    if !is_name || said.any(|other| other != namespace) {
        return Err(NoNamespace);
    }
    Ok(Some(namespace))
}

/// Returns whether it is the sandbox of a pod, which runs no program of the pod's author: engines
/// give it the pod's annotations as well.
pub(crate) fn is_sandbox(spec: &Spec) -> bool {
    let mut kinds = ALL.iter().filter_map(|names| spec.annotation(names.kind));
    kinds.any(|kind| kind == SANDBOX)
}

/// Returns its name in the pod, `POD/CONTAINER`.
pub(crate) fn name_of(spec: &Spec) -> Option<String> {
    ALL.iter().find_map(|names| {
        let pod = spec.annotation(names.pod)?;
        let container = spec.annotation(names.container)?;
        Some(format!("{pod}/{container}"))
    })
}
