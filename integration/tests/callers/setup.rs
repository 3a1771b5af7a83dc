//! `stasis setup`: each engine is configured for stasis from settings that lack it, uses it, and
//! has its earlier settings after `--undo`.

use std::fs;

use anyhow::Result;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::client::cri::settings;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{PROGRAM, RUNTIME, StasisHost};
use stasis_integration::host::{HostKind, Suite};
use stasis_integration::on_hosts;

pub(crate) const DAEMON: &str = "/etc/docker/daemon.json";
/// Settings in the layout that people use.
pub(crate) const DOCKER: &str = r#"{
    "storage-driver": "vfs",
    "bridge": "none", "iptables": false, "ip6tables": false,
    "exec-opts": ["native.cgroupdriver=cgroupfs"]
}
"#;
pub(crate) const CONTAINERS: &str = "/etc/containers/containers.conf";
const CONTAINERS_D: &str = "/etc/containers/containers.conf.d/stasis.conf";
pub(crate) const PODMAN: &str = "[containers]\nlog_driver = \"k8s-file\"\npids_limit = 0\n\n[engine]\n\
                      cgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n";
const CRIO_D: &str = "/etc/crio/crio.conf.d/stasis.conf";
const CRIO_ROOT: &str = "/run/stasis-crio";
const JOB: &str = "ml/train-0/main";
const CONTAINERD: &str = "/etc/containerd/config.toml";
const CONTAINERD_D: &str = "/etc/containerd/conf.d/stasis.toml";
const ID: &str = "needs-it";

on_hosts!(each_engine: trixie, sid_v2);

fn each_engine(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    stasis.install_shim()?;
    docker(&stasis, kind)?;
    podman(&stasis)?;
    crio(&stasis)?;
    containerd(&stasis, kind)
}

fn docker(stasis: &StasisHost, kind: HostKind) -> Result<()> {
    stasis.write(DAEMON, DOCKER)?;
    let shown = stasis.run_for_text(&[PROGRAM, "setup", "docker", "--dry-run"])?;
    let added = format!("+        \"stasis\": {{\"path\":\"{RUNTIME}\"}}\n");
    assert!(shown.contains(&added), "{shown}");
    assert!(shown.ends_with("nothing was written"), "{shown}");
    assert_eq!(text(stasis, DAEMON)?, DOCKER);
    if kind.suite == Suite::Sid {
        docker_without_checkpoints(stasis)?;
    }
    is_set(stasis, "docker")?;

    let daemon = stasis.docker()?;
    stasis.docker_run("job", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    // To Docker, checkpoints are experimental.
    stasis.docker_checkpoint(&[], "job", "first")?;
    stasis.docker_remove("job")?;
    daemon.kill()?;

    stasis.run(&[PROGRAM, "setup", "docker", "--undo"])?;
    let left = text(stasis, DAEMON)?;
    assert!(!left.contains("stasis"), "{left}");
    assert!(left.contains("\"experimental\": true"), "{left}");
    stasis.write(DAEMON, "{\"runtimes\": ")?;
    let error = stasis.fails(&[PROGRAM, "setup", "docker"])?;
    assert_contains(
        &error,
        &["daemon.json cannot be changed: EOF", "[settings]"],
    );
    Ok(())
}

/// Docker is not "experimental", and has no runtime of stasis' name.
fn docker_without_checkpoints(stasis: &StasisHost) -> Result<()> {
    let daemon = stasis.docker()?;
    stasis.docker_run("job", &["--runtime", "runc"], &["/bin/pause"])?;
    for command in [&["check", "job"][..], &["checkpoint", "job"]] {
        let asked = [&[PROGRAM], command, &["--json"]].concat();
        let output = stasis.command(asked[0]).args(&asked[1..]).output()?;
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        assert_eq!(output.status.code(), Some(1), "{answer}");
        assert_eq!(answer["kind"], "blocked", "{answer}");
        let said = answer.to_string();
        assert_contains(&said, &["docker-experimental", "stasis setup docker"]);
    }
    stasis.docker_remove("job")?;
    daemon.kill()?;
    Ok(())
}

fn podman(stasis: &StasisHost) -> Result<()> {
    stasis.write(CONTAINERS, PODMAN)?;
    is_set(stasis, "podman")?;
    stasis.podman_load()?;
    let run = [
        "--runtime",
        "stasis",
        "run",
        "--name",
        "job",
        "--network",
        "host",
    ];
    let image = Image::DEFAULT_NAME;
    stasis.podman(&[&run[..], &["-d", image, "/bin/pause"]].concat())?;
    let named = ["inspect", "-f", "{{.OCIRuntime}}", "job"];
    assert_eq!(stasis.podman(&named)?, "stasis");
    stasis.podman(&["rm", "-f", "-t", "0", "job"])?;
    stasis.run(&[PROGRAM, "setup", "podman", "--undo"])?;
    assert!(!stasis.path(CONTAINERS_D).exists());
    Ok(())
}

/// The test hosts have no CRI-O.
fn crio(stasis: &StasisHost) -> Result<()> {
    let setup = [PROGRAM, "setup", "crio"];
    let shown = stasis.run_for_text(&[&setup[..], &["--dry-run"]].concat())?;
    let added = format!("+runtime_path = \"{RUNTIME}\"\n");
    assert!(shown.contains(&added), "{shown}");
    assert!(!stasis.path(CRIO_D).exists());
    is_set(stasis, "crio")?;
    let handler = "[crio.runtime.runtimes.stasis]\n";
    let written = text(stasis, CRIO_D)?;
    assert!(written.starts_with(handler), "{written}");
    let root = format!("runtime_root = \"{CRIO_ROOT}\"\n");
    assert!(written.contains(&root), "{written}");

    let containerd = stasis.containerd()?;
    let job = Bundle::make(stasis, "job", &["/bin/pause"])?;
    job.change(|spec| spec["annotations"] = of_a_pod())?;
    let run = format!(
        "{RUNTIME} --root {CRIO_ROOT} run -d --bundle {} job </dev/null >/dev/null 2>&1",
        job.directory()
    );
    stasis.run(&["sh", "-c", &run])?;
    is_known(stasis)?;
    let refused = stasis.fails(&[&setup[..], &["--undo"]].concat())?;
    assert!(refused.contains(&format!("{JOB}; end them")), "{refused}");
    assert!(refused.contains("[busy]"), "{refused}");
    let delete = [RUNTIME, "--root", CRIO_ROOT, "delete", "--force", "job"];
    stasis.run(&delete)?;
    containerd.kill()?;
    stasis.run(&[&setup[..], &["--undo"]].concat())?;
    assert!(!stasis.path(CRIO_D).exists());
    Ok(())
}

/// Checks that `stasis` finds the container by the name that people use for it.
fn is_known(stasis: &StasisHost) -> Result<()> {
    let check = [PROGRAM, "check", "--json", JOB];
    let report: serde_json::Value = serde_json::from_str(&stasis.run_for_text(&check)?)?;
    assert_eq!(report["container"], "job", "{report}");
    Ok(())
}

/// Returns annotations such as CRI-O's.
fn of_a_pod() -> serde_json::Value {
    serde_json::json!({
        "io.container.manager": "cri-o",
        "io.kubernetes.pod.namespace": "ml",
        "io.kubernetes.pod.name": "train-0",
        "io.kubernetes.container.name": "main",
    })
}

fn containerd(stasis: &StasisHost, kind: HostKind) -> Result<()> {
    settings::write(&stasis.host, kind.suite, "version = 2\n")?;
    if stasis.path(CONTAINERD_D).exists() {
        fs::remove_file(stasis.path(CONTAINERD_D))?;
    }
    let before = text(stasis, CONTAINERD)?;
    is_set(stasis, "containerd")?;
    let dump = stasis.run_for_text(&["containerd", "config", "dump"])?;
    let path = "containerd-shim-stasis-v2";
    assert!(dump.contains(path), "{dump}");
    assert!(dump.contains(".runtimes.runc]"), "{dump}");

    let _containerd = stasis.containerd()?;
    let loaded = stasis.run_for_text(&["ctr", "plugins", "ls"])?;
    assert!(!loaded.contains("error"), "{loaded}");
    stasis.shim_run(ID, &["-d"], &["/bin/pause"])?;
    let refused = stasis.fails(&[PROGRAM, "setup", "containerd", "--undo"])?;
    assert!(
        refused.contains(&format!("/default/{ID}; end them")),
        "{refused}"
    );
    assert!(refused.contains("[busy]"), "{refused}");
    stasis.ctr_remove(ID)?;
    stasis.run(&[PROGRAM, "setup", "containerd", "--undo"])?;
    assert!(!stasis.path(CONTAINERD_D).exists());
    let after = text(stasis, CONTAINERD)?;
    // containerd 1.x needs this entry once another runtime is listed: it may stay.
    let runc = "\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\n\
                runtime_type = \"io.containerd.runc.v2\"\n";
    assert_eq!(after.replace(runc, ""), before);
    Ok(())
}

/// Runs the setup of an engine once; a second run has nothing left to change.
fn is_set(stasis: &StasisHost, engine: &str) -> Result<()> {
    let done = stasis.run_for_text(&[PROGRAM, "setup", engine])?;
    assert!(done.contains("\nwritten"), "{done}");
    let again = stasis.run_for_text(&[PROGRAM, "setup", engine, "--json"])?;
    let again: serde_json::Value = serde_json::from_str(&again)?;
    assert_eq!(again["files"], serde_json::json!([]));
    assert_eq!(again["written"], false);
    Ok(())
}

fn text(stasis: &StasisHost, path: &str) -> Result<String> {
    Ok(fs::read_to_string(stasis.path(path))?)
}
