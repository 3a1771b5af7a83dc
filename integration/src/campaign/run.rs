//! Runs sequences until enough faults have fired.

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::campaign::chance::Victims;
use crate::campaign::sequence::sequence;
use crate::campaign::tally::Tally;
use crate::host::HostKind;

/// Once this many sequences have failed, no other is begun: something is wrong with all of them.
const MOST_FAILURES: usize = 20;

/// How much is done, and where.
#[derive(Debug, Clone)]
pub struct Extent {
    /// How many faults have to fire.
    pub faults: u32,
    /// The seed of the first sequence; the next ones follow.
    pub seed: u64,
    /// How many sequences are carried out at the same time, in hosts of their own.
    pub jobs: usize,
    /// The hosts, of which each sequence draws one.
    pub kinds: Vec<HostKind>,
    /// The processes that can be hit.
    pub victims: Victims,
    /// No sequence is begun after this time.
    pub time: Duration,
}

/// Carries out sequences until enough faults have fired; one that fails does not stop the others.
/// Prints the tally in any case.
pub fn run(extent: &Extent) -> Result<()> {
    let work = Work {
        extent,
        began: Instant::now(),
        next: AtomicU64::new(extent.seed),
        so_far: Mutex::default(),
    };
    thread::scope(|scope| {
        for _ in 0..extent.jobs {
            scope.spawn(|| work.go_on());
        }
    });
    let (from, to) = (extent.seed, work.next.into_inner() - 1);
    let seconds = work.began.elapsed().as_secs();
    let so_far = work.so_far.into_inner();
    let SoFar { tally, failures } = so_far.unwrap_or_else(PoisonError::into_inner);
    println!("{tally}\nseeds {from} to {to}, {seconds} s");
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    let (fired, faults) = (tally.fired(), extent.faults);
    ensure!(fired >= faults, "{fired} of {faults} faults fired in time");
    Ok(())
}

/// The state that the jobs share.
#[derive(Debug)]
struct Work<'e> {
    extent: &'e Extent,
    began: Instant,
    next: AtomicU64,
    so_far: Mutex<SoFar>,
}

#[derive(Debug, Default)]
struct SoFar {
    tally: Tally,
    failures: Vec<String>,
}

impl Work<'_> {
    fn go_on(&self) {
        while !self.is_over() {
            let seed = self.next.fetch_add(1, Ordering::SeqCst);
            let mut tally = Tally::default();
            let Extent { kinds, victims, .. } = self.extent;
            let result = sequence(seed, kinds, *victims, &mut tally);
            let failure = result.err().map(|error| {
                let names: Vec<_> = self.extent.kinds.iter().map(|kind| kind.name).collect();
                let hosts = names.join(" ");
                let also = ["ROOM", "IMAGES", "STOPS", "WORKLOAD"].into_iter();
                let also = also.filter_map(|name| Some(format!(" {name}={}", env::var(name).ok()?)));
                let also: String = also.collect();
                format!(
                    "`make campaign N=1 SEED={seed} HOSTS=\"{hosts}\"{also}` repeats this: {error:#}"
                )
            });
            if let Some(failure) = &failure {
                eprintln!("FAILED {failure}");
            }
            let mut so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
            so_far.tally.join(tally);
            so_far.failures.extend(failure);
            let (fired, failed) = (so_far.tally.fired(), so_far.failures.len());
            eprintln!("SEED={seed}: over; {fired} faults have fired, {failed} sequences failed");
        }
    }

    fn is_over(&self) -> bool {
        let so_far = self.so_far.lock().unwrap_or_else(PoisonError::into_inner);
        so_far.tally.fired() >= self.extent.faults
            || so_far.failures.len() >= MOST_FAILURES
            || self.began.elapsed() > self.extent.time
    }
}
