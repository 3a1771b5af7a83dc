//! The annotations of an image's manifest, for people and programs that know nothing of stasis.

use std::ffi::OsStr;

use stasis_lifecycle::stopped::ENDING;
use stasis_locate::engine::Engine;
use stasis_locate::whose::Whose;
use stasis_oci_image::document::annotations::{
    ARCHITECTURE, Annotations, CONTAINER, CREATED, CRIU, ENGINE, IMAGE, IMAGE_ASKED, IMAGE_ID,
    IMAGE_NAME, KERNEL, NAMESPACE, POD, RUNTIME,
};

use crate::local::source::Source;

/// The length of a reference with a digest; engines' names are shorter.
const MOST_BYTES: usize = 512;

/// Returns the annotations for an image.
pub(super) fn of(source: &Source) -> Annotations {
    let manifest = &source.manifest;
    let whose = Whose::of(&source.directory, Some(&manifest.container));
    let (pod, name) = names(&whose);
    let machine = manifest.made_on.as_ref();
    let own = source.directory.file_name().and_then(OsStr::to_str);
    let said = [
        (CREATED, Some(manifest.created.as_str())),
        // The time of the stop, more exactly than in the manifest.
        (IMAGE, own.filter(|own| own.ends_with(ENDING))),
        (CONTAINER, name.or(Some(&manifest.container))),
        (ENGINE, whose.known.engine.map(engine)),
        (NAMESPACE, pod.map(|(namespace, _)| namespace)),
        (POD, pod.map(|(_, pod)| pod)),
        (IMAGE_NAME, whose.container_image.as_deref()),
        (IMAGE_ASKED, whose.asked_image.as_deref()),
        (IMAGE_ID, whose.image_id.as_deref()),
        (RUNTIME, whose.runtime.as_deref()),
        (CRIU, machine.and_then(|machine| machine.criu.as_deref())),
        (KERNEL, machine.map(|machine| machine.kernel.as_str())),
        (ARCHITECTURE, Some("amd64")),
    ];
    let said = said
        .into_iter()
        .filter_map(|(key, text)| Some((key, text?)));
    said.filter(|(_, text)| is_sayable(text))
        .map(|(key, text)| (key.to_owned(), text.to_owned()))
        .collect()
}

/// Returns whether a text can be a name. Users choose their containers' names: others are left out.
fn is_sayable(text: &str) -> bool {
    !text.is_empty() && text.len() <= MOST_BYTES && !text.chars().any(char::is_control)
}

/// Returns the pod with its namespace, and the container in it.
fn names(whose: &Whose) -> (Option<(&str, &str)>, Option<&str>) {
    let name = whose.known.name.as_deref();
    if !matches!(whose.known.engine, Some(Engine::Cri | Engine::CriO)) {
        return (None, name);
    }
    let mut parts = name.into_iter().flat_map(|name| name.splitn(3, '/'));
    match (parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(pod), Some(container)) => (Some((namespace, pod)), Some(container)),
        _ => (None, name),
    }
}

/// Names the engine as checkpointctl shows it.
fn engine(engine: Engine) -> &'static str {
    match engine {
        Engine::Podman => "Podman",
        Engine::CriO => "CRI-O",
        Engine::Docker => "Docker",
        Engine::Cri | Engine::Containerd | Engine::Nerdctl => "containerd",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_locate::engine::Known;

    #[test]
    fn a_pod_and_its_container_are_told_apart() {
        let whose = |engine, name: &str| Whose {
            known: Known {
                engine: Some(engine),
                name: Some(name.to_owned()),
            },
            ..Whose::default()
        };
        let of_pod = whose(Engine::Cri, "ml/train-0/main");
        assert_eq!(names(&of_pod), (Some(("ml", "train-0")), Some("main")));
        let odd = whose(Engine::CriO, "main");
        assert_eq!(names(&odd), (None, Some("main")));
        let of_podman = whose(Engine::Podman, "a/b/c");
        assert_eq!(names(&of_podman), (None, Some("a/b/c")));
    }

    #[test]
    fn what_is_no_name_is_not_said() {
        assert!(is_sayable("registry.example/jobs/train:1"));
        for odd in ["", "a\nb", "\u{1b}[31m", &"a".repeat(513)] {
            assert!(!is_sayable(odd), "{odd:?}");
        }
    }
}
