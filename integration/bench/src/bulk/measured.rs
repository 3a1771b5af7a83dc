//! What was measured of each cell; each is measured once a run.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::host::{Cgroups, Suite};

use super::cell::Cell;
use super::disk::Disk;
use super::memory::available;
use super::round::{Round, TMPFS, round};
use crate::figure::Sample;
use crate::options;

/// Of all rounds. Times in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) dump: Sample,
    pub(crate) durable: Option<Sample>,
    pub(crate) restore: Sample,
    pub(crate) peak: Sample,
}

impl Measured {
    fn of(rounds: &[Round]) -> Self {
        let sample = |of: fn(&Round) -> f64| Sample::new(rounds.iter().map(of).collect());
        let durable: Vec<f64> = rounds.iter().filter_map(|round| round.durable).collect();
        Self {
            dump: sample(|round| round.dump),
            durable: (!durable.is_empty()).then(|| Sample::new(durable)),
            restore: sample(|round| round.restore),
            peak: sample(|round| round.peak),
        }
    }

    pub(crate) fn durable(&self) -> Result<&Sample> {
        self.durable.as_ref().context("it never became durable")
    }
}

/// What is known already, or why it cannot be.
static KNOWN: Mutex<BTreeMap<Cell, Result<Measured, String>>> = Mutex::new(BTreeMap::new());

/// A host to measure in, with a plain tmpfs and a disk, which has to outlive it.
pub(crate) fn stasis_host() -> Result<(Disk, StasisHost)> {
    let stasis = StasisHost::start(Suite::Sid, Cgroups::V2, "runc")?;
    let disk = Disk::lend(&stasis)?;
    let script = format!("mkdir {TMPFS} && mount -t tmpfs -o size=100% tmpfs {TMPFS}");
    stasis.host.run(&["bash", "-c", &script])?;
    Ok((disk, stasis))
}

/// Measures cells in turns, so that whatever the machine does meanwhile hits all of them; for each
/// what was measured, or why it was not.
pub(crate) fn measure(
    screen: &mut dyn Write,
    cells: &[Cell],
) -> Result<Vec<Result<Measured, String>>> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wanted = Vec::new();
    let unknown: Vec<_> = cells
        .iter()
        .filter(|cell| !known.contains_key(cell))
        .collect();
    for cell in unknown {
        // The memory of the process, and as much for what is made of it.
        let needed = 2 * cell.bytes() + (2 << 30);
        let there = available()?;
        if there < needed {
            let why = format!(
                "needs {} GiB of memory, {} are free",
                needed >> 30,
                there >> 30
            );
            known.insert(*cell, Err(why));
        } else {
            wanted.push((*cell, Vec::new()));
        }
    }
    if !wanted.is_empty() {
        in_turns(screen, &mut wanted)?;
    }
    for (cell, rounds) in wanted {
        known.insert(cell, Ok(Measured::of(&rounds)));
    }
    let of = |cell| known.get(cell).cloned().context("it was not measured");
    cells.iter().map(of).collect()
}

fn in_turns(screen: &mut dyn Write, wanted: &mut [(Cell, Vec<Round>)]) -> Result<()> {
    let (_disk, stasis) = stasis_host()?;
    let _containerd = stasis.containerd()?;
    for number in 0..options::get().rounds {
        for (index, (cell, rounds)) in wanted.iter_mut().enumerate() {
            let id = format!("bulk-{number}-{index}");
            let measured = round(&stasis, cell, &id).with_context(|| cell.to_string())?;
            writeln!(screen, "{cell}: {measured}")?;
            rounds.push(measured);
        }
    }
    Ok(())
}
