//! The installer of `deploy/kubernetes`, as its DaemonSet runs it: in a container with the node's
//! root at `/host`, the node's processes and all rights. It installs, again, upgrades under a
//! running pod, and removes when that has ended.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::cri::{ContainerConfig, Cri, Pod, settings};
use stasis_integration::host::image::Image;
use stasis_integration::host::installed::{SETTINGS, StasisHost};
use stasis_integration::host::registry::Registry;
use stasis_integration::host::{HostKind, Suite};

use crate::packages::{assembled, without_make_install};

const FIRST: &str = "/root/first";
const SECOND: &str = "/root/second";
const INSTALLER: &str = "/root/installer.sh";
const PROGRAMS: &str = "/root/programs";
/// Node Feature Discovery makes a label of the node of it.
pub(super) const LABEL: &str = "/etc/kubernetes/node-feature-discovery/features.d/stasis";
pub(super) const READY: &str = "stasis.io/node=ready\n";
/// The arguments that the node's systemd got.
const ASKED_SYSTEMD: &str = "/root/systemctl.said";
pub(super) const RUNTIME: &str = "/usr/local/bin/stasis-runtime";
const CONFIG: &str = "/etc/containerd/config.toml";
const RESTART: &str = "restart containerd";

#[test]
fn installed_upgraded_removed() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid()?)?;
    a_node_without_stasis(stasis)?;
    let containerd = stasis.containerd()?;
    first_and_again(stasis)?;
    containerd.kill()?;

    let _containerd = stasis.host.containerd()?;
    let archive = stasis.path(stasis.install_image()?);
    let _registry = Registry::start(&stasis.host, &archive)?;
    let cri = Cri::connect(&stasis.host)?;
    cri.pull()?;
    let pod = cri.annotated_pod("job", &[("io.stasis.nccl", "checkpointable")])?;
    let counter = ContainerConfig::new("job", &["/bin/counter", "10000"]).with_gpu("job");
    let container = pod.run(&counter)?;
    assert_eq!(stasis.ask_until_up(10000)?, "101");
    let environment = cri.exec(&container.id, &["cat", "/proc/1/environ"])?.stdout;
    let environment = String::from_utf8_lossy(&environment).into_owned();
    // The pod's annotation has reached the runtime.
    assert_contains(&environment, &["NCCL_NVLS_ENABLE=0"]);
    upgraded_under_it(stasis)?;
    cri.checkpoint(&container.id, "/images/job.tar")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    removed_when_it_has_ended(stasis, pod)?;
    stasis.no_container_left_of(&[&container.id])
}

/// Sets up a node whose containerd has CRI, and whose systemd records its orders.
pub(super) fn a_node_without_stasis(stasis: &StasisHost) -> Result<()> {
    without_make_install(stasis)?;
    settings::write(&stasis.host, Suite::Sid, "")?;
    fs::remove_file(stasis.path("/etc/containerd/conf.d/stasis.toml"))?;
    tarballs(stasis)?;
    let systemd = "/usr/bin/systemctl";
    let script = format!("#!/bin/sh\necho \"$*\" >>{ASKED_SYSTEMD}\n");
    stasis.script(systemd, &script)?;
    stasis.write(ASKED_SYSTEMD, "")?;
    // Test images have no sleep: their containers end when they are dumped.
    let sleep = format!("{PROGRAMS}/sleep");
    stasis.host.install(Path::new("/bin/busybox"), &sleep)?;
    let script = repository().join("deploy/kubernetes/image/installer.sh");
    stasis.host.install(&script, INSTALLER)?;
    stasis.run(&["mkdir", "-p", "/run/systemd/system"])?;
    Ok(())
}

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Makes the tarball of the programs under test as the image has it, and one of a later version.
fn tarballs(stasis: &StasisHost) -> Result<()> {
    let out = assembled(None)?;
    let built = out.path().join("stasis-0.1.0-x86_64.tar.gz");
    stasis.host.install(&built, "/root/first.tar.gz")?;
    let script = format!(
        "mkdir {FIRST} {SECOND}; tar -C {FIRST} -xf /root/first.tar.gz; \
         cp -a {FIRST}/stasis-0.1.0-x86_64 {SECOND}/stasis-0.1.1-x86_64; \
         for program in stasis-runtime containerd-shim-stasis-v2; do \
         echo later >>{SECOND}/stasis-0.1.1-x86_64/bin/$program; done"
    );
    stasis.run(&["sh", "-ec", &script]).map(drop)
}

/// Runs the installer with a package until its output contains `end`.
fn run<'host>(
    stasis: &'host StasisHost,
    verb: &str,
    package: &str,
    end: &str,
) -> Result<Installer<'host>> {
    let sleep = format!("{PROGRAMS}/sleep");
    let mounts = [
        (package, "/package"),
        (INSTALLER, "/installer.sh"),
        (&sleep, "/bin/sleep"),
    ];
    run_image(stasis, Image::DEFAULT_NAME, &mounts, verb, end)
}

/// Does the same with an image, and with these paths of the host in place of some of its own.
pub(super) fn run_image<'host>(
    stasis: &'host StasisHost,
    image: &str,
    mounts: &[(&str, &str)],
    verb: &str,
    end: &str,
) -> Result<Installer<'host>> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let (id, log) = (
        format!("installer-{number}"),
        format!("/root/installer-{number}.log"),
    );
    let mut arguments = vec!["ctr".to_owned(), "run".to_owned(), "-d".to_owned()];
    for (source, target) in [&[("/", "/host")], mounts].concat() {
        let mount = format!("type=bind,src={source},dst={target},options=rbind:rw");
        arguments.extend(["--mount".to_owned(), mount]);
    }
    let rest = format!(
        "--privileged --with-ns pid:/proc/1/ns/pid --env NODE_NAME=node-1 --log-uri file://{log} \
         {image} {id} sh /installer.sh {verb} containerd"
    );
    arguments.extend(rest.split_whitespace().map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    stasis.run(&arguments)?;
    let installer = Installer { stasis, id, log };
    installer.wait_for(end)?;
    Ok(installer)
}

pub(super) struct Installer<'host> {
    stasis: &'host StasisHost,
    id: String,
    log: String,
}

impl Installer<'_> {
    fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(self.stasis.path(&self.log))?)
    }

    fn wait_for(&self, end: &str) -> Result<()> {
        wait_until_clear(|| {
            let said = self.said()?;
            Ok((!said.contains(end)).then_some(said))
        })
    }

    /// Ends the installer at once, as when its pod is ended.
    fn kill(self) -> Result<()> {
        self.stasis.run(&["ctr", "tasks", "kill", &self.id])?;
        self.end().map(drop)
    }

    /// Waits until the installer has ended. Returns its output.
    pub(super) fn end(self) -> Result<String> {
        self.stasis.ctr_wait_for(&self.id, "STOPPED")?;
        self.stasis.ctr_remove(&self.id)?;
        self.said()
    }
}

/// Whether containerd's settings have the handler of stasis.
pub(super) fn has_handler(stasis: &StasisHost) -> Result<bool> {
    Ok(text(stasis, CONFIG)?.contains("runtimes.stasis"))
}

fn first_and_again(stasis: &StasisHost) -> Result<()> {
    let (criu, away) = ("/usr/sbin/criu", "/root/criu");
    stasis.run(&["mv", criu, away])?;
    let said = run(stasis, "install", FIRST, "install: done")?.end()?;
    stasis.run(&["mv", away, criu])?;
    assert_contains(&said, &[&format!("{RUNTIME} is that of the image")]);
    let handler = text(stasis, CONFIG)?;
    let shim = "runtime_path = \"/usr/local/bin/containerd-shim-stasis-v2\"";
    assert_contains(&handler, &[shim]);
    assert_contains(&said, &["criu-missing", "labelled degraded"]);
    assert_eq!(text(stasis, LABEL)?, "stasis.io/node=degraded\n");
    let asked = text(stasis, ASKED_SYSTEMD)?;
    assert_eq!(asked, format!("daemon-reload\n{RESTART}\n"));

    stasis.set("runc", "")?;
    let (settings, program) = (text(stasis, SETTINGS)?, inode(stasis, RUNTIME)?);
    let said = run(stasis, "install", FIRST, "install: done")?.end()?;
    assert_eq!(said.matches("is that of the image").count(), 1, "{said}");
    assert_eq!(text(stasis, LABEL)?, READY, "{said}");
    assert_eq!(inode(stasis, RUNTIME)?, program);
    assert_eq!(text(stasis, SETTINGS)?, settings);
    assert_eq!(text(stasis, ASKED_SYSTEMD)?.matches(RESTART).count(), 1);
    Ok(())
}

/// Nothing is restarted, and the programs are exchanged in one step each.
fn upgraded_under_it(stasis: &StasisHost) -> Result<()> {
    let said = run(stasis, "install", SECOND, "install: done")?.end()?;
    let exchanged: Vec<&str> = said
        .lines()
        .filter(|line| line.ends_with("is that of the image"))
        .collect();
    let shim = "/usr/local/bin/containerd-shim-stasis-v2";
    assert_eq!(exchanged.len(), 2, "{said}");
    ensure!(
        exchanged[0].contains(RUNTIME) && exchanged[1].contains(shim),
        "{said}"
    );
    let later = format!("{SECOND}/stasis-0.1.1-x86_64/bin/stasis-runtime");
    stasis.run(&["cmp", RUNTIME, &later])?;
    assert_eq!(text(stasis, ASKED_SYSTEMD)?.matches(RESTART).count(), 1);
    Ok(())
}

fn removed_when_it_has_ended(stasis: &StasisHost, pod: Pod<'_>) -> Result<()> {
    let removes = run(stasis, "remove", SECOND, "needed by a container")?;
    ensure!(!stasis.path(LABEL).exists(), "the label is there");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    ensure!(has_handler(stasis)?, "the handler is gone");
    pod.remove()?;
    removes.wait_for("remove: done")?;
    removes.end()?;
    let left = stasis.run_for_text(&["find", "/usr/local", "-type", "f", "-name", "*stasis*"])?;
    assert_eq!(left, "");
    ensure!(!has_handler(stasis)?, "the handler is there");
    ensure!(stasis.path(SETTINGS).exists(), "the settings are gone");
    assert_eq!(text(stasis, ASKED_SYSTEMD)?.matches(RESTART).count(), 2);
    // Once more, as when a pod is started again.
    run(stasis, "remove", SECOND, "remove: done")?.end()?;
    run(stasis, "stay", SECOND, "")?.kill()
}

pub(super) fn text(stasis: &StasisHost, path: &str) -> Result<String> {
    Ok(fs::read_to_string(stasis.path(path))?)
}

fn inode(stasis: &StasisHost, path: &str) -> Result<u64> {
    Ok(fs::metadata(stasis.path(path))?.ino())
}
