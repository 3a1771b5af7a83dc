use super::*;
use crate::tests::spec_of;

fn named(registry: &str, namespace: Option<&str>, given: &str) -> Result<String, NoFirstImage> {
    let spec = spec_of(namespace);
    allowed(registry, &spec, &given.parse().unwrap())
}

#[test]
fn a_pod_names_what_is_in_its_namespace() {
    let registry = "http://registry.example:5000/jobs";
    let red = "registry.example:5000/jobs/red/one:1";
    let whole = format!("http://{red}");
    for namespace in [None, Some("red")] {
        assert_eq!(named(registry, namespace, red).unwrap(), whole);
        assert_eq!(named(registry, namespace, &whole).unwrap(), whole);
    }
    for namespace in ["blue", "re"] {
        let refused = named(registry, Some(namespace), red);
        assert!(matches!(refused, Err(NoFirstImage::OtherRegistry { .. })));
    }
    let refused = named(registry, Some("red/one"), red);
    assert!(matches!(refused, Err(NoFirstImage::Namespace(_))));
}

#[test]
fn nobody_names_what_is_elsewhere() {
    for given in [
        "registry.example/jobs-too/one:1",
        "registry.example/one:1",
        "registry.example:5000/jobs/one:1",
        "other.example/jobs/one:1",
    ] {
        let refused = named("registry.example/jobs", None, given);
        assert!(
            matches!(refused, Err(NoFirstImage::OtherRegistry { .. })),
            "{given}"
        );
    }
    let refused = named("", None, "registry.example/jobs/one:1");
    assert!(matches!(refused, Err(NoFirstImage::NoRegistry)));
}
