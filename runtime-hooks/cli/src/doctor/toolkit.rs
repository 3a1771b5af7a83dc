//! How NVIDIA's container toolkit gives GPUs to containers: by CDI, engines hand the driver's files
//! to the runtime as mounts of the specification; by its hook the files appear in the container
//! behind the runtime's back, and CRIU knows of no mount that it could be given at a restore.

use std::path::Path;

use super::{Finding, warning};
use crate::check::runtime::{NVIDIA, NVIDIA_SETTINGS};
use crate::setup::tables::Toml;

/// Where packages put podman's and CRI-O's hook.
const HOOKS: [&str; 2] = [
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
];

pub(super) fn findings() -> Vec<Finding> {
    let settings = Toml::read(Path::new(NVIDIA_SETTINGS)).ok();
    let hook = HOOKS.into_iter().find(|path| Path::new(path).exists());
    let by_mode = settings.filter(is_legacy).map(|_| {
        by_hook(
            &format!("{NVIDIA_SETTINGS} has the mode \"legacy\""),
            "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi",
        )
    });
    let by_file = hook.map(|path| by_hook(&format!("{path} exists"), &format!("rm {path}")));
    by_mode.into_iter().chain(by_file).collect()
}

fn by_hook(evidence: &str, remedy: &str) -> Finding {
    warning(
        "toolkit-mode",
        format!("{evidence}: a hook mounts the driver's files, with which stasis was not tried"),
        format!("{remedy}; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    )
}

fn is_legacy(settings: &Toml) -> bool {
    let mode = settings.find(&[NVIDIA, "mode"]);
    mode.and_then(|mode| mode.as_str()) == Some("legacy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mode_is_the_hooks() {
        let of = |table: &str, mode: &str| {
            let text = format!("[{table}]\nmode = \"{mode}\"\n");
            is_legacy(&Toml::parse(Path::new("x"), Some(&text)).unwrap())
        };
        assert!(of(NVIDIA, "legacy") && !of("other", "legacy"));
        assert!(!of(NVIDIA, "cdi") && !of(NVIDIA, "auto"));
    }
}
