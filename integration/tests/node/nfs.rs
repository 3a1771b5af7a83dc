//! Image directories on NFS, which the node serves to itself.

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::node::Node;

use crate::job::Jobs;

/// The mount point of the file system on the node.
const MOUNTED: &str = "/mnt/images";
/// Version 4 alone needs no rpcbind, and a server that knows no earlier clients waits for none.
const SERVE: &str = "set -e
    modprobe nfsd
    mount -t nfsd nfsd /proc/fs/nfsd
    mkdir -p /srv/images /mnt/images /var/lib/nfs/v4recovery
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    exportfs -i -o rw,sync,no_root_squash,no_subtree_check,fsid=0 127.0.0.1:/srv/images
    rpc.mountd --no-nfs-version 3
    rpc.nfsd --no-nfs-version 3 --grace-time 10 --lease-time 10 4
    echo Y >/proc/fs/nfsd/v4_end_grace || true
    mount -t nfs4 127.0.0.1:/ /mnt/images
    stat -f -c %T /mnt/images";

/// One job is saved at its stop; two have their images in one directory, one after the other.
pub(crate) fn has_images(mut node: Node) -> Result<()> {
    let kind = node.run(SERVE)?;
    ensure!(kind == "nfs", "{kind}");
    for (name, port) in [("one", 10000), ("two", 10001)] {
        node.run_job(name, port, "")?;
        let directory = node.run(&format!(
            "podman inspect --format '{{{{.StaticDir}}}}' {name}"
        ))?;
        node.run(&format!(
            "mkdir -p {directory}/checkpoint {MOUNTED}/shared
             mount --bind {MOUNTED}/shared {directory}/checkpoint"
        ))?;
    }
    is_saved_at_its_stop(&mut node)?;
    one_writer_at_a_time(&mut node)
}

/// A checkpoint that fails as busy has changed nothing, and the earlier image restores meanwhile.
fn one_writer_at_a_time(node: &mut Node) -> Result<()> {
    node.run(&checkpoint("one"))?;
    node.answers(10000, "ok 1")?;
    node.hold("checkpoint two")?;
    node.begin(&checkpoint("two"))?;
    node.until_held()?;
    let busy = node.try_run(&checkpoint("one"))?;
    ensure!(busy.code != Some(0), "{busy:#?}");
    let said = format!("{}{}", busy.stdout, busy.stderr);
    assert_contains(&said, &["another checkpoint is writing an image into"]);
    node.answers(10000, "ok 2")?;
    node.run(&format!("stasis verify --here {MOUNTED}/shared"))?;
    restores(node, "one", 10000, "ok 1")?;
    node.let_go()?;
    node.run("while systemctl is-active -q caller; do sleep 0.2; done")?;
    node.nothing_is_left()?;
    node.answers(10001, "ok 1")?;
    node.run(&format!(
        "stasis verify --here {MOUNTED}/shared && ! ls -d {MOUNTED}/shared/.stasis-*"
    ))?;
    restores(node, "two", 10001, "ok 1")?;
    node.run("podman rm -f -t 0 one two").map(drop)
}

/// NFS gives the lock of a key's image in the making only on a file open for writing.
fn is_saved_at_its_stop(node: &mut Node) -> Result<()> {
    node.run(&format!(
        "cat >>/etc/stasis/stasis.toml <<'END'
restore.at_create = \"{MOUNTED}\"
restore.keep_at_stop = 1
END"
    ))?;
    let saved = "--annotation=io.stasis.checkpoint=on-stop \
                 --annotation=io.stasis.checkpoint.key=three \
                 --annotation=io.stasis.restore=latest:three";
    node.run_job("three", 10002, saved)?;
    node.answers(10002, "ok 1")?;
    node.run("podman stop -t 250 three")?;
    let saved = node.try_run(&format!("ls -A {MOUNTED}/three/*/inventory.img"))?;
    let told = node.run("tail -n 1 /var/log/stasis/operations.log")?;
    ensure!(saved.code == Some(0), "{saved:#?}\n{told}");
    node.run("podman start three")?;
    node.answers(10002, "ok 2")?;
    node.run("podman rm -f -t 0 three").map(drop)
}

fn checkpoint(name: &str) -> String {
    format!("podman container checkpoint --keep --leave-running {name}")
}

fn restores(node: &mut Node, name: &str, port: u16, answer: &str) -> Result<()> {
    node.run(&format!(
        "podman kill {name}; podman wait {name}; podman container restore --keep {name}"
    ))?;
    node.answers(port, answer)
}
