//! Power failures in the middle of an operation: after the boot nothing of it is left, the earlier
//! image restores, and the next checkpoint works.

use anyhow::{Context, Result, ensure};
use stasis_integration::node::Node;

use crate::job::Jobs;

const PORT: u16 = 10000;
const CHECKPOINT: &str = "podman container checkpoint --leave-running job";
const RESTORE: &str = "podman container restore job";
/// A frozen operation stays half done.
const FREEZER: &str = "/sys/fs/cgroup/system.slice/caller.service/cgroup.freeze";

/// In the GPU checkpoint and in the dump of a checkpoint whose directory has an earlier image.
pub(crate) fn fails_in_a_checkpoint(mut node: Node) -> Result<()> {
    node.run_job("job", PORT, "")?;
    node.run(CHECKPOINT)?;
    let image = image(&mut node)?;

    node.hold("checkpoint job")?;
    node.begin(CHECKPOINT)?;
    node.until_held()?;
    node = comes_back(node, 1).context("in the GPU checkpoint")?;

    half_dumped(&mut node, &image)?;
    node = node.lose_power()?;
    half_an_image_is_refused(&mut node, &image)?;
    node = is_back(node, 2).context("in the dump")?;
    node.run(&format!("! ls -d {image}/.stasis-*"))?;
    Ok(())
}

/// In the GPU restore of a restore, and while the restored job is suspended.
pub(crate) fn fails_after_a_checkpoint(mut node: Node) -> Result<()> {
    node.run_job("job", PORT, "")?;
    node.run("podman container checkpoint job")?;
    node.hold("restore job")?;
    node.begin(RESTORE)?;
    node.until_held()?;
    // podman syncs nothing of its own to the disk, and restores nothing with a truncated file.
    node.run("sync")?;
    node = comes_back(node, 1).context("in the GPU restore")?;

    node.toggle("job")?;
    comes_back(node, 2).context("while it was suspended")?;
    Ok(())
}

fn comes_back(node: Node, counted: u64) -> Result<Node> {
    is_back(node.lose_power()?, counted)
}

/// Checks that the last whole image restores and counts on, and so does the next one.
fn is_back(mut node: Node, counted: u64) -> Result<Node> {
    node.unit_has_run_at_boot()?;
    node.nothing_is_left()?;
    node.run(RESTORE)?;
    node.answers(PORT, &format!("ok {counted}"))?;
    // From now on nothing reaches the disk without a sync.
    node.run("sync; sysctl vm.dirty_writeback_centisecs=0 vm.dirty_expire_centisecs=360000")?;
    node.run(CHECKPOINT)?;
    Ok(node)
}

/// Begins a checkpoint and holds it when CRIU has written memory, but not the whole image. The
/// written files are on disk.
fn half_dumped(node: &mut Node, image: &str) -> Result<()> {
    node.begin(CHECKPOINT)?;
    node.run(&format!(
        "until compgen -G '{image}/.stasis-new/pages-*.img' >/dev/null; do :; done
         echo 1 >{FREEZER}; pgrep -x criu
         ! ls {image}/.stasis-new/inventory.img; sync"
    ))?;
    Ok(())
}

fn half_an_image_is_refused(node: &mut Node, image: &str) -> Result<()> {
    let half = node.try_run(&format!("stasis verify {image}/.stasis-new"))?;
    ensure!(half.code != Some(0), "{half:#?}");
    ensure!(half.stdout.contains("inventory.img"), "{half:#?}");
    node.run(&format!("stasis verify --here {image}"))?;
    Ok(())
}

/// Returns the path of podman's image of the job.
fn image(node: &mut Node) -> Result<String> {
    let directory = node.run("podman inspect --format '{{.StaticDir}}' job")?;
    Ok(format!("{directory}/checkpoint"))
}
