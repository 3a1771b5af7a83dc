//! Nothing is left behind: after fifty checkpoints and restores everything is as before.

use anyhow::Result;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::memory_container::{Inventory, difference};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

const ROUNDS: u32 = 50;

/// Lists the host's resources, and the container's.
fn inventory(stasis: &StasisHost, bundle: &Bundle<'_>) -> Result<Inventory> {
    let pid = bundle.pid()?;
    let mut all = stasis.inventory()?;
    for (kind, command) in [
        ("descriptors", format!("ls /proc/{pid}/fd")),
        ("threads", format!("ls /proc/{pid}/task | wc -l")),
        ("state", "find /run/bundles -type f | sort".to_owned()),
    ] {
        let lines = stasis.run_for_text(&["sh", "-c", &command])?;
        all.insert(kind, lines.lines().map(str::to_owned).collect());
    }
    Ok(all)
}

/// Copied by our threads into files, and by the driver into memory of the process.
const COPIED_BY: [&str; 2] = ["auto", "driver"];

fn settings(path: &str) -> String {
    format!("gpu_checkpoint.path = \"{path}\"\n")
}

#[test]
fn fifty_checkpoints_and_restores_leave_everything_as_it_was() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid_v2()?)?;
    stasis.set("runc", &settings(COPIED_BY[0]))?;
    let _containerd = stasis.containerd()?;
    let memory = Bundle::make(&stasis, "memory", &["/bin/memcheck", "8", "10000"])?;
    memory.comes_up(10000, "ok 0")?;
    // The first round makes the files that stay: directories, logs.
    memory.checkpoint("image", &["--leave-running"])?;
    memory.checkpoint("image", &[])?;
    memory.restore("image")?;
    stasis.set("runc", &settings(COPIED_BY[1]))?;
    memory.checkpoint("image", &[])?;
    memory.restore("image")?;
    let before = inventory(&stasis, &memory)?;
    for (round, path) in (1..=ROUNDS).zip(COPIED_BY.into_iter().cycle()) {
        stasis.set("runc", &settings(path))?;
        memory.checkpoint("image", &["--leave-running"])?;
        memory.checkpoint("image", &[])?;
        memory.restore("image")?;
        assert_eq!(stasis.ask(10000)?, Some(format!("ok {round}")));
    }
    assert_eq!(difference(&before, &inventory(&stasis, &memory)?), None);
    stasis.inject("checkpoint memory error:801")?;
    memory.checkpoint_fails("image", &[])?;
    stasis.inject("")?;
    memory.delete()
}
