//! Several processes of one container have their contents in files at the same time.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::contents::IN_MEMORY;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;
use stasis_memory_store::Index;

use super::MIB;
use crate::gpu_contents::with_criu;

/// The ports of the other processes; the first one answers at the port before these.
const OTHERS: RangeInclusive<u16> = 10001..=10007;
const HEAPS: u64 = 8 * 16 * MIB;

#[test]
fn each_has_its_own() -> Result<()> {
    each_of_eight(HostKind::trixie()?, "")
}

#[test]
fn each_is_a_pack_of_the_image() -> Result<()> {
    each_of_eight(HostKind::sid_v2()?, IN_MEMORY)
}

fn each_of_eight(kind: HostKind, settings: &str) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.set(&stasis.low_level, settings)?;
    let others: Vec<String> = OTHERS
        .map(|port| format!("/bin/memcheck 8 {port} &"))
        .collect();
    let command = format!("{} exec /bin/memcheck 8 10000", others.join(" "));
    let job = MemoryContainer::start(stasis, "job", &command, 10000)?;
    all_answer(stasis, 0)?;
    job.bundle.checkpoint("goes-on", &["--leave-running"])?;
    eight_holes(&job, "goes-on")?;
    job.goes_on()?;
    all_answer(stasis, 1)?;
    job.bundle.checkpoint("ends", &[])?;
    eight_holes(&job, "ends")?;
    job.bundle.restore("ends")?;
    job.goes_on()?;
    all_answer(stasis, 2)?;
    job.end()?;
    // No process has another one's contents: each is where it was then.
    job.bundle.restore("goes-on")?;
    job.is_back_at(1);
    job.goes_on()?;
    all_answer(stasis, 1)?;
    stasis.nothing_to_put_right()?;
    job.end()
}

fn all_answer(stasis: &StasisHost, count: u64) -> Result<()> {
    for port in OTHERS {
        let answer = stasis.ask_until_up(port)?;
        ensure!(answer == format!("ok {count}"), "{port}: {answer}");
    }
    Ok(())
}

fn eight_holes(job: &MemoryContainer<'_>, image: &str) -> Result<()> {
    let index = Index::read(&job.bundle.image_path(image))?.context("no index")?;
    let sizes: Vec<u64> = index.areas().map(|hole| hole.bytes).collect();
    let large = sizes.iter().filter(|bytes| **bytes >= 8 * MIB);
    ensure!(large.count() == 8, "{sizes:?}");
    let by_criu = with_criu(&job.bundle, image)?;
    ensure!(by_criu < HEAPS + 48 * MIB, "CRIU has {by_criu} bytes");
    Ok(())
}
