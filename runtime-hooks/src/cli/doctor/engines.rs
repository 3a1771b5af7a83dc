//! What engines are told of stasis, in the files that `stasis setup` writes.

use std::path::Path;

use serde_json::Value;
use toml_edit::{DocumentMut, Item};

use super::{fault, warning};
use crate::cli::machine::Finding;
use crate::cli::setup::{change, tables};

const DOCKER: &str = "/etc/docker/daemon.json";
const PODMAN: [&str; 2] = [
    "/etc/containers/containers.conf",
    "/etc/containers/containers.conf.d/stasis.conf",
];
const CONTAINERD: [&str; 2] = [
    "/etc/containerd/config.toml",
    "/etc/containerd/conf.d/stasis.toml",
];
/// CRI, in both versions of containerd's settings.
const CRI: [&str; 2] = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"];
const NAME: &str = "stasis";

pub(super) fn findings() -> Vec<Finding> {
    let docker = change::read(Path::new(DOCKER));
    let mut found = match docker {
        Ok(text) => text.map_or(Vec::new(), |text| of_docker(&text)),
        Err(error) => vec![fault("docker-settings", error.to_string(), "correct it")],
    };
    found.extend(
        PODMAN
            .iter()
            .flat_map(|path| of_file(path, "podman", of_podman)),
    );
    found.extend(
        CONTAINERD
            .iter()
            .flat_map(|path| of_file(path, "containerd", of_containerd)),
    );
    found
}

fn of_docker(text: &str) -> Vec<Finding> {
    let settings: Value = match serde_json::from_str(text) {
        Ok(settings) => settings,
        Err(_) if text.trim().is_empty() => return Vec::new(),
        Err(error) => {
            let evidence = format!("{DOCKER}: {error}");
            return vec![fault(
                "docker-settings",
                evidence,
                "correct it: dockerd does not start",
            )];
        }
    };
    let Some(runtime) = settings["runtimes"][NAME]["path"].as_str() else {
        return Vec::new();
    };
    let mut found: Vec<Finding> = is_there("docker-runtime", DOCKER, runtime, "docker").collect();
    if settings["experimental"] != true {
        found.push(warning(
            "docker-experimental",
            format!("{DOCKER} is not \"experimental\": Docker has no checkpoints"),
            "stasis setup docker",
        ));
    }
    found
}

fn of_file(path: &str, engine: &str, look: fn(&str, &DocumentMut) -> Vec<Finding>) -> Vec<Finding> {
    let file = Path::new(path);
    let parsed = change::read(file).and_then(|text| tables::parse(file, text.as_deref()));
    match parsed {
        Ok(document) => look(path, &document),
        Err(error) => {
            let id = format!("{engine}-settings");
            vec![fault(&id, error.to_string(), "correct it")]
        }
    }
}

fn of_podman(path: &str, document: &DocumentMut) -> Vec<Finding> {
    let paths = tables::find(document, &["engine", "runtimes", NAME]).and_then(Item::as_array);
    let Some(paths) = paths else {
        return Vec::new();
    };
    let paths: Vec<&str> = paths.iter().filter_map(|path| path.as_str()).collect();
    // podman takes the first that is there.
    match paths.as_slice() {
        [first, ..] if !paths.iter().any(|path| Path::new(path).exists()) => {
            is_there("podman-runtime", path, first, "podman").collect()
        }
        _ => Vec::new(),
    }
}

fn of_containerd(path: &str, document: &DocumentMut) -> Vec<Finding> {
    let mut found = Vec::new();
    for cri in CRI {
        let of_cri = |keys: &[&str]| tables::find(document, &[&["plugins", cri], keys].concat());
        let shim = of_cri(&["containerd", "runtimes", NAME, "runtime_path"]);
        if let Some(shim) = shim.and_then(Item::as_str) {
            found.extend(is_there("containerd-runtime", path, shim, "containerd"));
        }
        let restores = of_cri(&["enable_experimental_restore_via_create"]);
        if restores.and_then(Item::as_bool) == Some(true) {
            found.push(warning(
                "containerd-restores",
                format!("{path} restores pods from any image that is a checkpoint"),
                "see docs/containerd.md, \"Who may restore is root\"",
            ));
        }
    }
    found
}

fn is_there<'a>(
    id: &'a str,
    file: &'a str,
    program: &'a str,
    engine: &'a str,
) -> impl Iterator<Item = Finding> {
    let evidence = format!("{file} names {program}, which is not there");
    let missing = !Path::new(program).exists();
    missing
        .then(|| fault(id, evidence, format!("stasis setup {engine}")))
        .into_iter()
}
