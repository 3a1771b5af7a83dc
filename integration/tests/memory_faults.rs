//! Faults in CRIU's plugin wherever it does something: no container loses memory, nothing is left behind, the error
//! says what it was, and the next operation succeeds.

use anyhow::{Context, Result};
use stasis_integration::holder::Holder;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

#[test]
fn probe() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    lab.set("runc", "bulk_memory.containers = \"all\"\n")?;
    let heaps = Holder::start(
        &lab,
        "heaps",
        "exec /bin/heaps 10000 24 random plain half-zero exec",
        10000,
    )?;
    let gpu = Holder::start(&lab, "gpu", "exec /bin/memcheck 48 10001", 10001)?;
    for holder in [&heaps, &gpu] {
        for kind in ["error", "panic", "kill"] {
            for point in [
                "take:1", "copy:1", "copy:9", "copy:18", "empty:1", "empty:2", "finish:1", "end:1",
                "fill:1", "fill:5",
            ] {
                for options in [&[][..], &["--leave-running"]] {
                    holder.order(&format!("{point}:{kind}"))?;
                    let t = std::time::Instant::now();
                    let said = holder.bundle.checkpoint("failed", options);
                    println!(
                        "== {} {point}:{kind} {options:?} {:?}: {said:?}",
                        holder.bundle.id,
                        t.elapsed()
                    );
                    holder.order("")?;
                    if holder.bundle.status()? != "running" {
                        println!("   {}", holder.bundle.status()?);
                        holder.bundle.restore("failed")?;
                    }
                    println!(
                        "   left: missing {:?} {:?}",
                        holder.missing(),
                        holder.nothing_left_of_dump("failed")
                    );
                    holder
                        .goes_on()
                        .with_context(|| format!("{point} {kind}"))?;
                    println!("   {:?}", holder.nothing_left_of_dump("failed"));
                }
            }
        }
    }
    Ok(())
}
