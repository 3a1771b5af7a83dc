//! A hundred checkpoints of one container, every other one restored, in the image and on disk: nothing grows.

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::holder::{Holder, Inventory, names_in};
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{Lab, PROGRAM};

const CYCLES: u32 = 100;
/// When everything has been done once in every way.
const SETTLED: u32 = 8;

/// What a container that goes on for ever cannot have more of each time.
#[derive(Debug, PartialEq, Eq)]
struct Use {
    descriptors: usize,
    mappings: usize,
    threads: usize,
    image_files: usize,
    stored_files: usize,
}

#[test]
fn nothing_grows() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerd = lab.containerd()?;
    let command = "exec /bin/heaps 10000 8 random plain half-zero huge heap exec";
    let holder = Holder::start(&lab, "heaps", command, 10000)?;
    let mut settled: Option<(Use, u64, Inventory)> = None;
    for cycle in 1..=CYCLES {
        let tier = ["portable", "disk"][(cycle as usize / 2) % 2];
        round(&lab, &holder, cycle, tier).with_context(|| format!("cycle {cycle}, {tier}"))?;
        if cycle % SETTLED == 0 {
            let now = (
                of_workload(&lab, &holder)?,
                resident(&lab, &holder)?,
                inventory(&lab)?,
            );
            let (uses, bytes, there) = settled.get_or_insert(now);
            let (now, resident) = (of_workload(&lab, &holder)?, resident(&lab, &holder)?);
            ensure!(now == *uses, "cycle {cycle}: {now:?} and not {uses:?}");
            ensure!(
                resident.abs_diff(*bytes) < 4 << 20,
                "cycle {cycle}: {resident} bytes and not {bytes}"
            );
            let now = inventory(&lab)?;
            ensure!(now == *there, "cycle {cycle}: {now:?} and not {there:?}");
        }
    }
    Ok(())
}

fn round(lab: &Lab, holder: &Holder<'_>, cycle: u32, tier: &str) -> Result<()> {
    lab.set(
        "runc",
        &format!("bulk_memory = {{ containers = \"all\", tier = \"{tier}\", minimum_mib = 2 }}\n"),
    )?;
    if cycle.is_multiple_of(2) {
        holder.bundle.checkpoint("image", &[])?;
        holder.bundle.restore("image")?;
    } else {
        holder.bundle.checkpoint("image", &["--leave-running"])?;
    }
    holder.goes_on()?;
    // An image that was overwritten leaves its memory to the administrator.
    lab.host.run(&[PROGRAM, "memory", "prune", "--force"])?;
    Ok(())
}

fn of_workload(lab: &Lab, holder: &Holder<'_>) -> Result<Use> {
    let process = lab.host.path(format!("/proc/{}", holder.bundle.pid()?));
    let count = |name: &str| Ok::<_, anyhow::Error>(names_in(&process.join(name))?.len());
    let stored = ["/var/lib/stasis/memory", "/run/stasis/memory"];
    let stored = stored.map(|directory| names_in(&lab.host.path(directory)));
    let mut files = 0;
    for directory in stored {
        files += directory?.len();
    }
    Ok(Use {
        descriptors: count("fd")?,
        mappings: fs::read_to_string(process.join("maps"))?.lines().count(),
        threads: count("task")?,
        image_files: names_in(&holder.bundle.image_path("image"))?.len(),
        stored_files: files,
    })
}

fn resident(lab: &Lab, holder: &Holder<'_>) -> Result<u64> {
    let status = lab
        .host
        .path(format!("/proc/{}/status", holder.bundle.pid()?));
    let status = fs::read_to_string(status)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("no VmRSS")? << 10)
}

/// All but what is named after a checkpoint.
fn inventory(lab: &Lab) -> Result<Inventory> {
    let mut inventory = lab.inventory()?;
    inventory.remove("stored");
    Ok(inventory)
}
