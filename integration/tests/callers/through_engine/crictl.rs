//! Containers of Kubernetes by the real crictl, of which Debian has no package: `STASIS_CRICTL`
//! names one.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stasis_integration::client::cri::Cri;
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{DEVICES, DRIVER, StasisHost};

use super::object;
use crate::commands::json as answer;

/// Without the option crictl gives up after two seconds, too few for a loaded machine.
const CRICTL: [&str; 2] = ["crictl", "--timeout=60s"];
const POD: &str = "/root/pod.json";
const CONTAINER: &str = "/root/container.json";
const ARCHIVES: [&str; 2] = ["/images/by-crictl.tar", "/images/by-stasis.tar"];

pub(super) fn counter_is_checkpointed_and_restored(stasis: &StasisHost, _: &Cri) -> Result<()> {
    let program = std::env::var("STASIS_CRICTL").context("STASIS_CRICTL")?;
    let inside = "/usr/local/bin/crictl";
    stasis.host.install(Path::new(&program), inside)?;
    let namespaces = json!({"namespace_options": {"network": 2, "pid": 1}});
    let pod = json!({
        "metadata": {"name": "jobs", "namespace": "default", "uid": "uid-of-jobs", "attempt": 0},
        "log_directory": "/var/log/pods/jobs",
        "linux": {"cgroup_parent": "/kubepods/pod-jobs", "security_context": namespaces},
    });
    stasis.write(POD, &pod.to_string())?;
    let pod = crictl(stasis, &["runp", "--runtime=stasis", POD])?;
    let container = started(stasis, &pod, Image::DEFAULT_NAME)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");

    let export = format!("--export={}", ARCHIVES[0]);
    crictl(stasis, &["checkpoint", &export, &container])?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    let (_, rows) = answer(stasis, &["ps"])?;
    let name = rows[0]["name"].as_str().context("no name")?;
    let whole = ["checkpoint", name, "-R", "--image", ARCHIVES[1]];
    let (code, outcome) = object(stasis, &whole)?;
    assert_eq!(
        (code, &outcome["result"]),
        (Some(0), &"done".into()),
        "{outcome}"
    );
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));

    let mut of_before = container;
    for (archive, next) in ARCHIVES.into_iter().zip(["102", "103"]) {
        crictl(stasis, &["rm", "-f", &of_before])?;
        of_before = started(stasis, &pod, archive)?;
        assert_eq!(stasis.ask(10000)?.as_deref(), Some(next), "{archive}");
    }
    crictl(stasis, &["rmp", "-f", &pod])?;
    ensure!(stasis.shims()?.is_empty(), "a shim runs");
    stasis.nothing_left_of(&[&of_before])
}

/// Creates and starts a container of an image, or of an archive. Returns its id.
fn started(stasis: &StasisHost, pod: &str, image: &str) -> Result<String> {
    let devices = DEVICES
        .map(|path| json!({"container_path": path, "host_path": path, "permissions": "rwm"}));
    let variable = |key: &str, value: &str| json!({"key": key, "value": value});
    let container: Value = json!({
        "metadata": {"name": "job"},
        "image": {"image": image},
        "command": ["/bin/counter", "10000"],
        "envs": [variable("LD_LIBRARY_PATH", &format!("{DRIVER}/lib64")), variable("STASIS_TAG", "job")],
        "mounts": [{"container_path": DRIVER, "host_path": DRIVER, "readonly": true}],
        "devices": devices,
        "log_path": "job.log",
        "linux": {"security_context": {"namespace_options": {"network": 2, "pid": 1}}},
    });
    stasis.write(CONTAINER, &container.to_string())?;
    let id = crictl(stasis, &["create", pod, CONTAINER, POD])?;
    crictl(stasis, &["start", &id])?;
    Ok(id)
}

fn crictl(stasis: &StasisHost, arguments: &[&str]) -> Result<String> {
    stasis.run_for_text(&[&CRICTL, arguments].concat())
}
