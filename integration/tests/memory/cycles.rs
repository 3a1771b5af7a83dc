//! A hundred checkpoints of one container, every other one restored, in the image and on disk:
//! nothing grows.

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::contents::{Contents, DISK};
use stasis_integration::container::memory_container::{Inventory, MemoryContainer, names_in};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

const CYCLES: u32 = 100;
/// The cycle after which every step has been done in every way.
const SETTLED: u32 = 8;
/// Memory that the kernel makes huge pages of may double. A leak of a fifth of a MiB in each cycle
/// is more.
const GROWTH: u64 = 16 << 20;
/// The threads that store.
const THREADS: usize = 2;

/// The resources of which a container that runs for ever cannot use more each time.
#[derive(Debug, PartialEq, Eq)]
struct Use {
    descriptors: usize,
    mappings: usize,
    threads: usize,
    /// The names without packs, which have other names each time.
    image_files: Vec<String>,
    stored_files: usize,
}

#[test]
fn nothing_grows() -> Result<()> {
    let stasis = StasisHost::with_containerd(HostKind::sid()?)?;
    let command = "exec /bin/memcheck 8 10000";
    let holder = MemoryContainer::start(&stasis, "job", command, 10000)?;
    let mut settled: Option<(Use, u64, Inventory)> = None;
    for cycle in 1..=CYCLES {
        let place = [Contents::InImage, Contents::OnDisk][(cycle as usize / 2) % 2];
        let said = round(&stasis, &holder, cycle, place);
        said.with_context(|| format!("cycle {cycle}, {place:?}"))?;
        if cycle % SETTLED == 0 {
            let now = (
                of_workload(&stasis, &holder)?,
                resident(&stasis, &holder)?,
                inventory(&stasis)?,
            );
            let (uses, bytes, there) = settled.get_or_insert(now);
            let (now, resident) = (of_workload(&stasis, &holder)?, resident(&stasis, &holder)?);
            ensure!(now == *uses, "cycle {cycle}: {now:?} and not {uses:?}");
            ensure!(
                resident < *bytes + GROWTH,
                "cycle {cycle}: {bytes} bytes have become {resident}"
            );
            let now = inventory(&stasis)?;
            ensure!(now == *there, "cycle {cycle}: {now:?} and not {there:?}");
        }
    }
    Ok(())
}

fn round(
    stasis: &StasisHost,
    holder: &MemoryContainer<'_>,
    cycle: u32,
    place: Contents,
) -> Result<()> {
    let threads = format!("gpu_contents.threads = {THREADS}\n");
    let settings = format!("{}{threads}", place.setting());
    stasis.set("runc", &settings)?;
    if cycle.is_multiple_of(2) {
        holder.bundle.checkpoint("image", &[])?;
        holder.bundle.restore("image")?;
    } else {
        holder.bundle.checkpoint("image", &["--leave-running"])?;
    }
    holder.goes_on()?;
    // An image that was overwritten leaves its contents to the administrator.
    let removed = [PROGRAM, "gc", "--contents", "--yes"];
    stasis.run(&removed)?;
    Ok(())
}

fn of_workload(stasis: &StasisHost, holder: &MemoryContainer<'_>) -> Result<Use> {
    let process = stasis.path(format!("/proc/{}", holder.bundle.pid()?));
    let count = |name: &str| Ok::<_, anyhow::Error>(names_in(&process.join(name))?.len());
    let stored = [DISK, "/run/stasis/staging"];
    let stored = stored.map(|directory| names_in(&stasis.path(directory)));
    let mut files = 0;
    for directory in stored {
        files += directory?.len();
    }
    Ok(Use {
        descriptors: count("fd")?,
        mappings: fs::read_to_string(process.join("maps"))?.lines().count(),
        threads: count("task")?,
        image_files: files_of(holder)?,
        stored_files: files,
    })
}

/// Returns the image's files other than its packs. A thread makes a pack when it has something to
/// write, and one thread may have written it all.
fn files_of(holder: &MemoryContainer<'_>) -> Result<Vec<String>> {
    let mut names = names_in(&holder.bundle.image_path("image"))?;
    let packs = names.extract_if(.., |name| name.ends_with(".pack")).count();
    ensure!(packs <= THREADS, "{packs} packs: some are not its own");
    // A tmpfs's number is the machine's, and other hosts mount, too.
    names.retain(|name| !name.starts_with("tmpfs-dev-"));
    names.sort();
    Ok(names)
}

fn resident(stasis: &StasisHost, holder: &MemoryContainer<'_>) -> Result<u64> {
    let status = stasis.path(format!("/proc/{}/status", holder.bundle.pid()?));
    let status = fs::read_to_string(status)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("no VmRSS")? << 10)
}

/// Returns the inventory without the files that are named after a checkpoint.
fn inventory(stasis: &StasisHost) -> Result<Inventory> {
    let mut inventory = stasis.inventory()?;
    inventory.remove("stored");
    Ok(inventory)
}
