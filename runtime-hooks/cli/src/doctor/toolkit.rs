//! How NVIDIA's container toolkit gives GPUs to containers: by CDI, engines hand the driver's files
//! to the runtime as mounts of the specification; by its hook the files appear in the container
//! behind the runtime's back, and CRIU knows of no mount that it could be given at a restore.

use std::fs;
use std::path::Path;

use toml_edit::DocumentMut;

use super::warning;
use crate::doctor::Finding;

const SETTINGS: &str = "/etc/nvidia-container-runtime/config.toml";
/// Where packages put podman's and CRI-O's hook.
const HOOKS: [&str; 2] = [
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
];

pub(super) fn findings() -> Vec<Finding> {
    let settings = fs::read_to_string(SETTINGS).unwrap_or_default();
    let hook = HOOKS.into_iter().find(|path| Path::new(path).exists());
    let by_mode = is_legacy(&settings).then(|| {
        by_hook(
            &format!("{SETTINGS} has the mode \"legacy\""),
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

fn is_legacy(settings: &str) -> bool {
    let document: Option<DocumentMut> = settings.parse().ok();
    let mode = document.as_ref().and_then(|document| {
        let table = document.get("nvidia-container-runtime")?;
        table.get("mode")?.as_str()
    });
    mode == Some("legacy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mode_is_the_hooks() {
        let of = |mode: &str| is_legacy(&format!("[nvidia-container-runtime]\nmode = {mode}\n"));
        assert!(of("\"legacy\""));
        assert!(!of("\"cdi\"") && !of("\"auto\"") && !of("["));
        assert!(!is_legacy("[other]\nmode = \"legacy\"\n"));
    }
}
