//! Takes a snapshot of the processes of a cgroup and prints the time and the descriptors it took.
//!
//! `cargo run --release --example snapshot_speed -- INIT_PID CGROUP_DIRECTORY`

#![allow(clippy::unwrap_used, reason = "a measurement")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use stasis_linux::cgroup::pids;
use stasis_linux::procfs::{descriptors, threads};
use stasis_linux::{ProcessRef, Snapshot};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let init = arguments.next().unwrap().parse().unwrap();
    let cgroup = PathBuf::from(arguments.next().unwrap());
    let init = ProcessRef::open(init).unwrap().unwrap();
    let done = AtomicBool::new(false);
    let (snapshot, time, peak) = std::thread::scope(|scope| {
        let peak = scope.spawn(|| highest_number_of_descriptors(&done));
        let begun = Instant::now();
        let snapshot = Snapshot::take(&init, &pids(&cgroup).unwrap()).unwrap();
        let time = begun.elapsed();
        done.store(true, Ordering::Relaxed);
        (snapshot, time, peak.join().unwrap())
    });
    let members = snapshot.members();
    let in_all: usize = members
        .iter()
        .map(|one| threads(one.pid).unwrap().len())
        .sum();
    println!(
        "{} processes with {in_all} threads, {} may use CUDA: {:.2} s, at most {peak} descriptors",
        members.len(),
        snapshot.candidates().len(),
        time.as_secs_f64()
    );
}

fn highest_number_of_descriptors(done: &AtomicBool) -> usize {
    let own = i32::try_from(std::process::id()).unwrap();
    let mut peak = 0;
    while !done.load(Ordering::Relaxed) {
        peak = peak.max(descriptors(own).unwrap().count());
    }
    peak
}
