//! A crun that is killed in a restore leaves nothing in the bundle, which engines keep.

use std::fs;

use anyhow::{Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::{needs, on_hosts};

const CRIU: &str = "/usr/local/sbin/criu";
/// CRIU is crun's child, and gets its requests through a socket.
const KILLER: &str =
    "#!/bin/sh\n[ \"$1\" = swrk ] && kill -9 $PPID && exit 1\nexec /usr/sbin/criu \"$@\"\n";

on_hosts!(the_next_restore_succeeds: crun_on_trixie_v2, crun_on_sid_v2);

fn the_next_restore_succeeds(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = Bundle::make(stasis, "job", &["/bin/memcheck", "24", "10000"])?;
    job.suit_crun()?;
    job.comes_up(10000, "ok 0")?;
    job.checkpoint("image", &[])?;
    job.delete()?;

    stasis.script(CRIU, KILLER)?;
    let message = job.restore_fails("image")?;
    ensure!(message.contains("signal: 9"), "{message}");
    nothing_is_mounted(stasis, &job)?;

    // A mount that a crun without stasis has left.
    let [left, root] = ["criu-root", "rootfs"].map(|name| format!("{}/{name}", job.directory()));
    stasis.run(&["mkdir", &left])?;
    stasis.run(&["mount", "--bind", &root, &left])?;
    stasis.run(&["rm", CRIU])?;
    job.restore("image")?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    nothing_is_mounted(stasis, &job)?;
    job.delete()
}

fn nothing_is_mounted(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let mounts = stasis.run_for_text(&["cat", "/proc/self/mountinfo"])?;
    ensure!(!mounts.contains("criu-root"), "{mounts}");
    let left = stasis.path(job.directory()).join("criu-root");
    ensure!(!left.exists(), "the directory is left");
    // The container's files were not removed through the mount.
    let root = stasis.path(job.directory()).join("rootfs");
    ensure!(
        fs::read_dir(root)?.next().is_some(),
        "the root file system is empty"
    );
    Ok(())
}
