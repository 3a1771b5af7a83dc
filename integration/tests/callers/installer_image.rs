//! The installer's image, as `deploy/kubernetes/image/build.sh` builds it, installs and removes.

use std::path::Path;

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

use crate::installer::{
    LABEL, READY, RUNTIME, a_node_without_stasis, has_handler, repository, run_image, text,
};

const NAME: &str = "localhost/installer:test";
/// The part of the repository that the test needs.
const REPOSITORY: &str = "/root/repository";

#[test]
fn built_image_installs_and_removes() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid()?)?;
    a_node_without_stasis(stasis)?;
    build(stasis)?;
    let _containerd = stasis.containerd()?;
    stasis.run(&["ctr", "image", "import", "/root/image.tar"])?;
    stasis.set("runc", "")?;
    let said = run_image(stasis, NAME, &[], "install", "install: done")?.end()?;
    assert_contains(&said, &[&format!("{RUNTIME} is that of the image")]);
    assert_eq!(text(stasis, LABEL)?, READY, "{said}");
    ensure!(has_handler(stasis)?, "no handler");
    run_image(stasis, NAME, &[], "remove", "remove: done")?.end()?;
    ensure!(!stasis.path(RUNTIME).exists() && !has_handler(stasis)?);
    Ok(())
}

/// Builds in the test host, which has podman, from this machine's busybox.
fn build(stasis: &StasisHost) -> Result<()> {
    let busybox = "/bin/busybox";
    stasis.host.install(Path::new(busybox), busybox)?;
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
         {copy}/build.sh {NAME}
         podman save --format docker-archive -o /root/image.tar {NAME}"
    );
    stasis.run(&["bash", "-ec", &script]).map(drop)
}
