//! The note on engines that pack an image's directory once stasis has written it.

use std::time::Duration;

use stasis_config::Settings;
use stasis_locate::engine::Engine;

use crate::answer::amount::size;

/// How fast engines pack: `ctr containers checkpoint` of 8 GiB took 20.4 s on an H100, of which
/// stasis took 2.4 s.
const PACKED: u64 = 8 << 30;
const TOOK: Duration = Duration::from_secs(18);

/// Notes that an engine packs so many bytes of GPU contents, how long that is expected to take, and
/// how to avoid it. `None` if it packs none, or contents lie apart from images.
pub(super) fn note(settings: &Settings, engine: Engine, bytes: u64) -> Option<String> {
    if bytes == 0 || settings.gpu_contents.directory().is_some() {
        return None;
    }
    let who = match engine {
        Engine::Containerd | Engine::Nerdctl | Engine::Docker => "containerd packs",
        Engine::Cri | Engine::CriO => "the engine packs",
        Engine::Podman => "podman packs, with --export,",
    };
    let seconds = u128::from(bytes) * TOOK.as_millis() / u128::from(PACKED) / 1000;
    Some(format!(
        "{who} the image's directory into an archive, {} of GPU contents with it: about {seconds} s \
         more, and a quarter of that at a restore; gpu_contents.directory in the settings keeps them \
         apart (stasis setup --contents)",
        size(bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_of_contents_in_the_image_alone() {
        let mut settings = Settings::default();
        let said = note(&settings, Engine::Containerd, 16 << 30).unwrap();
        assert!(said.contains("about 36 s") && said.contains("gpu_contents.directory"));
        assert!(
            note(&settings, Engine::Podman, 1)
                .unwrap()
                .contains("--export")
        );
        assert_eq!(note(&settings, Engine::Cri, 0), None);
        settings.gpu_contents.directory = "/dev/shm/stasis".into();
        assert_eq!(note(&settings, Engine::Cri, 16 << 30), None);
    }
}
