//! The repository of a registry that has the images of a key.

use std::path::Path;

use stasis_oci_image::RepositoryName;

use crate::pod::{NoNamespace, namespace_of};
use stasis_engine::container::spec::Spec;

/// A key has no repository.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum NoRepository {
    #[error(transparent)]
    Namespace(#[from] NoNamespace),
    #[error(
        "{name} is no repository of a registry: {what}; give the container a key in lower case \
         (io.stasis.checkpoint.key)"
    )]
    Name { name: String, what: &'static str },
}

/// The repository of a key, below that of the settings, and of a pod's container below that of its
/// namespace.
pub(crate) fn repository_of(
    registry: &str,
    spec: &Spec,
    key: &Path,
) -> Result<RepositoryName, NoRepository> {
    let namespace = namespace_of(spec)?.map(|namespace| format!("{namespace}/"));
    let namespace = namespace.unwrap_or_default();
    let name = format!("{registry}/{namespace}{}", key.display());
    name.parse()
        .map_err(|what| NoRepository::Name { name, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::spec_of;

    fn named(namespace: Option<&str>, key: &str) -> Result<String, NoRepository> {
        let spec = spec_of(namespace);
        let found = repository_of("http://registry.example:5000/jobs", &spec, key.as_ref());
        found.map(|found| found.to_string())
    }

    #[test]
    fn a_pods_key_is_below_its_namespace() {
        let jobs = "http://registry.example:5000/jobs";
        assert_eq!(named(None, "a/b").unwrap(), format!("{jobs}/a/b"));
        assert_eq!(named(Some("red"), "a").unwrap(), format!("{jobs}/red/a"));
        let odd = named(Some("../red"), "a");
        assert!(matches!(odd, Err(NoRepository::Namespace(_))));
    }

    #[test]
    fn what_a_registry_cannot_be_asked_for_is_refused() {
        for key in ["Job", "a/B", "a-", "_a"] {
            let refused = named(None, key).unwrap_err();
            assert!(matches!(refused, NoRepository::Name { .. }), "{key}");
        }
    }
}
