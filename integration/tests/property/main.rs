//! Random sequences of checkpoints, restores and faults. Whatever happens, the processes of a
//! container go on with their GPU where they were, or an error says that they are lost; nothing
//! else is left behind; and an image whose checkpoint succeeded restores.
//!
//! Each sequence has a seed, one more than the sequence before; every run does the same, unless
//! the environment asks for others: `STASIS_SEED` is the first seed, `STASIS_SEQUENCES` how many
//! there are. Signals come at steps of an operation, with `STASIS_MOMENTS=random` some time later.

mod container;
mod fault;
mod step;
mod verdict;
mod workload;

use anyhow::{Context, Result};
use fastrand::Rng;
use stasis_integration::check::seed::{number, seed};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;

use container::TestedContainer;
use workload::Workload;

/// How many sequences there are by default.
const SEQUENCES: u64 = 8;
/// Deadlines so short that what cannot be locked fails soon; and bulk memory in most containers.
const SETTINGS: &str =
    "[deadlines]\nlock_ms = 4000\nlock_try_ms = 100\n[bulk_memory]\nminimum_mib = 1\n";

#[test]
fn whatever_happens_containers_go_on_or_are_said_to_be_lost() -> Result<()> {
    let stasis = StasisHost::of(HostKind::sid()?)?;
    let elsewhere = StasisHost::of(HostKind::sid()?)?;
    let _containerds = (stasis.containerd()?, elsewhere.containerd()?);
    stasis.set("runc", SETTINGS)?;
    let first = seed()?;
    for seed in first..first + number("STASIS_SEQUENCES", SEQUENCES)? {
        sequence(&stasis, &elsewhere, seed)
            .with_context(|| format!("STASIS_SEED={seed} STASIS_SEQUENCES=1 repeats this"))?;
    }
    Ok(())
}

fn sequence(stasis: &StasisHost, elsewhere: &StasisHost, seed: u64) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let workload = Workload::any(&mut random);
    eprintln!("STASIS_SEED={seed}: {workload:?}");
    let mut container = TestedContainer::start(stasis, elsewhere, workload)?;
    for _ in 0..random.u32(2..5) {
        container.step(&mut random)?;
    }
    container.end_it()
}
