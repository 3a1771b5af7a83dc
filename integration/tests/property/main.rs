//! Random sequences of checkpoints, restores and mishaps. Whatever happens, the processes of a container go on with
//! their GPU where they were, or an error says that they are lost; nothing else is left behind; and an image whose
//! checkpoint succeeded restores.
//!
//! Each sequence has a seed, which a failure names: `STASIS_SEED=N` repeats that one.

mod judgement;
mod mishap;
mod subject;
mod workload;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;

use subject::Subject;
use workload::Workload;

/// How long new sequences are begun.
const TIME: Duration = Duration::from_secs(55);
/// Deadlines so short that what cannot be locked fails soon; and bulk memory in most containers.
const SETTINGS: &str =
    "[deadlines]\nlock_ms = 4000\nlock_try_ms = 100\n[bulk_memory]\nminimum_mib = 1\n";

#[test]
fn whatever_happens_containers_go_on_or_are_said_to_be_lost() -> Result<()> {
    let lab = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let elsewhere = Lab::start(Suite::Sid, Cgroups::oldest()?, "runc")?;
    let _containerds = (lab.containerd()?, elsewhere.containerd()?);
    lab.set("runc", SETTINGS)?;
    if let Some(seed) = std::env::var_os("STASIS_SEED") {
        let seed = seed.to_string_lossy().parse()?;
        return sequence(&lab, &elsewhere, seed);
    }
    let began = Instant::now();
    let mut seed = fastrand::u64(..1 << 32);
    while began.elapsed() < TIME {
        sequence(&lab, &elsewhere, seed)?;
        seed += 1;
    }
    Ok(())
}

fn sequence(lab: &Lab, elsewhere: &Lab, seed: u64) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let workload = Workload::any(&mut random);
    eprintln!("STASIS_SEED={seed}: {workload:?}");
    let told = || format!("STASIS_SEED={seed} repeats this");
    let mut subject = Subject::start(lab, elsewhere, workload).with_context(told)?;
    for _ in 0..random.u32(2..5) {
        subject.step(&mut random).with_context(told)?;
    }
    subject.end_it().with_context(told)
}
