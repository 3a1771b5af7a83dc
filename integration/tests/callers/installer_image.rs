//! The installer's image, as `deploy/kubernetes/image/build.sh` builds it, installs and removes.

use std::process::Command;

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

use crate::installer::{
    LABELLED, PROGRAMS, RUNTIME, a_node_without_stasis, has_handler, repository, run_image, text,
};

const NAME: &str = "localhost/installer:test";
/// The part of the repository that the test needs.
const REPOSITORY: &str = "/root/repository";
const PACKAGES: &str = "/root/packages";

#[test]
#[ignore = "downloads kubectl, which CI does not wait for: by hand (docs/kubernetes.md)"]
fn built_image_installs_and_removes() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid()?)?;
    a_node_without_stasis(stasis)?;
    build(stasis)?;
    let _containerd = stasis.containerd()?;
    stasis
        .host
        .run(&["ctr", "image", "import", "/root/image.tar"])?;
    // There is no API server.
    let kubectl = format!("{PROGRAMS}/kubectl");
    let mounts = [(kubectl.as_str(), "/bin/kubectl")];
    let said = run_image(stasis, NAME, &mounts, "install", "install: done")?.end()?;
    assert_contains(&said, &[&format!("{RUNTIME} is that of the image")]);
    assert_contains(&text(stasis, LABELLED)?, &["io.stasis.node=ready"]);
    ensure!(has_handler(stasis)?, "no handler");
    run_image(stasis, NAME, &mounts, "remove", "remove: done")?.end()?;
    ensure!(!stasis.host.path(RUNTIME).exists() && !has_handler(stasis)?);
    Ok(())
}

/// Builds in the test host, which has podman and no network: the script's downloads are put there.
fn build(stasis: &StasisHost) -> Result<()> {
    let packages = tempfile::tempdir()?;
    let mut download = Command::new("apt-get");
    download.args(["-q", "download", "busybox-static", "kubernetes-client"]);
    let output = download.current_dir(packages.path()).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    stasis.host.install_dir(packages.path(), PACKAGES)?;
    let apt = format!("#!/bin/sh\ncp {PACKAGES}/*.deb .\n");
    stasis.host.write("/root/bin/apt-get", &apt)?;
    stasis.host.run(&["chmod", "755", "/root/bin/apt-get"])?;
    let image = "deploy/kubernetes/image";
    let copy = format!("{REPOSITORY}/{image}");
    stasis.host.install_dir(&repository().join(image), &copy)?;
    let version = repository().join("Cargo.toml");
    stasis
        .host
        .install(&version, &format!("{REPOSITORY}/Cargo.toml"))?;
    let script = format!(
        "mkdir -p {REPOSITORY}/target/package
         cp /root/first.tar.gz {REPOSITORY}/target/package/stasis-0.1.0-x86_64.tar.gz
         PATH=/root/bin:$PATH {copy}/build.sh {NAME}
         podman save --format docker-archive -o /root/image.tar {NAME}"
    );
    stasis.host.run(&["bash", "-ec", &script]).map(drop)
}
