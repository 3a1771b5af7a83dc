//! Probe.
use anyhow::Result;
use stasis_integration::holder::Holder;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
#[test]
fn probe() -> Result<()> {
    for (suite, cg, low) in [
        (Suite::Trixie, Cgroups::V2, "crun"),
        (Suite::Sid, Cgroups::V2, "runc"),
    ] {
        let lab = Lab::start(suite, cg, low)?;
        let _containerd = lab.containerd()?;
        lab.set(low, "bulk_memory.enabled = false\n")?;
        let h = Holder::start(
            &lab,
            "heaps",
            "exec /bin/heaps 10000 40 random plain half-zero exec",
            10000,
        )?;
        h.bundle.checkpoint("x", &[])?;
        println!("{}", lab.host.run_for_text(&["bash", "-c", "find /sys/fs/cgroup -type d; ls -a /images/heaps-x; rm -f /images/heaps-x/core-2.img"])?);
        println!("{:?}", h.bundle.restore("x"));
        println!(
            "{}",
            lab.host.run_for_text(&[
                "bash",
                "-c",
                "find /sys/fs/cgroup -type d; ls -a /run/bundle-heaps/work; cat /proc/mounts"
            ])?
        );
    }
    Ok(())
}
