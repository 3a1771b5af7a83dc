//! Sequences until so many faults have fired.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use crate::campaign::sequence::sequence;
use crate::campaign::tally::Tally;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// How many faults have to fire.
    pub faults: u32,
    /// The seed of the first sequence; the next ones follow.
    pub seed: u64,
    /// How many sequences are carried out at the same time, in hosts of their own.
    pub jobs: usize,
}

/// Carries out sequences until enough faults have fired, or one sequence fails. Prints the tally in
/// any case.
///
/// # Errors
/// That of the sequence that failed, with its seed.
pub fn run(extent: Extent) -> Result<()> {
    let began = Instant::now();
    let (next, fired) = (AtomicU64::new(extent.seed), AtomicU32::new(0));
    let has_failed = AtomicBool::new(false);
    let job = || {
        let mut tally = Tally::default();
        while fired.load(Ordering::SeqCst) < extent.faults && !has_failed.load(Ordering::SeqCst) {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            let before = tally.fired();
            let result = sequence(seed, &mut tally);
            fired.fetch_add(tally.fired() - before, Ordering::SeqCst);
            if let Err(error) = result {
                has_failed.store(true, Ordering::SeqCst);
                let about = format!("`make campaign N=1 SEED={seed}` repeats this");
                return (tally, Err(error).context(about));
            }
        }
        (tally, Ok(()))
    };
    let over: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..extent.jobs).map(|_| scope.spawn(job)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut all = Tally::default();
    let mut result = Ok(());
    for job in over {
        let (tally, ended) = job.map_err(|_| anyhow!("a job panicked"))?;
        all.join(tally);
        result = result.and(ended);
    }
    let (from, to) = (extent.seed, next.load(Ordering::SeqCst) - 1);
    let seconds = began.elapsed().as_secs();
    println!("{all}\nseeds {from} to {to}, {seconds} s");
    result
}
