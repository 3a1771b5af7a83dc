//! A random sequence of operations on several containers of one host.

use std::env;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;

use crate::campaign::chance::Company;
use crate::campaign::fault::Fault;
use crate::campaign::judge::{End, Outcome};
use crate::campaign::subject::{SharedGates, Subject};
use crate::campaign::tally::Tally;
use crate::campaign::verb::{Place, Verb};
use crate::campaign::workload::Workload;
use crate::check::wait::wait_until_clear;
use crate::container::memory_container::difference;
use crate::host::HostKind;
use crate::host::installed::StasisHost;

/// Deadlines so short that what cannot be locked fails soon; and bulk memory in most containers.
const SETTINGS: &str =
    "[deadlines]\nlock_ms = 4000\nlock_try_ms = 100\n[bulk_memory]\nminimum_mib = 1\n";
const FIRST_PORT: u16 = 10000;
const NAMES: [&str; 3] = ["ada", "bob", "cyd"];

/// A sequence.
#[derive(Debug)]
struct Sequence<'l, 't> {
    stasis: &'l StasisHost,
    random: Rng,
    subjects: Vec<Subject<'l>>,
    tally: &'t mut Tally,
}

/// The hosts of sequences, where nobody chooses others.
///
/// # Errors
/// The machine's cgroups cannot be read.
pub fn hosts() -> Result<Vec<HostKind>> {
    Ok(vec![
        HostKind::sid()?,
        HostKind::trixie()?,
        HostKind::sid_v2()?,
    ])
}

/// Carries out the sequence of a seed in a host of its own, of one of these kinds, and counts what
/// comes of it.
///
/// # Errors
/// A job is lost, an image is wrong, or something is left behind.
pub fn sequence(seed: u64, kinds: &[HostKind], tally: &mut Tally) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let stasis = StasisHost::of(kinds[random.usize(..kinds.len())])?;
    let result = in_host(seed, random, &stasis, tally);
    if result.is_err() && env::var_os("KEEP").is_some() {
        let init = stasis.host.init();
        eprintln!("{result:?}\nnsenter --all --target {init} shows the host; interrupt to end it");
        loop {
            thread::park();
        }
    }
    result
}

fn in_host(seed: u64, mut random: Rng, stasis: &StasisHost, tally: &mut Tally) -> Result<()> {
    let _containerd = stasis.containerd()?;
    let shared = SharedGates::build(stasis, SETTINGS)?;
    // What an operation leaves for the next one, or for it to remove, is no leak.
    one_without_a_fault(stasis, &shared)?;
    let before = stasis.inventory()?;
    let count = random.usize(2..=NAMES.len());
    let mut subjects = Vec::new();
    for (name, port) in NAMES.into_iter().zip(FIRST_PORT..).take(count) {
        let workload = Workload::any(&mut random);
        eprintln!("SEED={seed}: {name} is {workload:?}");
        subjects.push(Subject::start(stasis, &shared, name, workload, port)?);
    }
    let mut sequence = Sequence {
        stasis,
        random,
        subjects,
        tally,
    };
    for _ in 0..sequence.random.u32(6..12) {
        sequence.round()?;
    }
    sequence.end()?;
    one_without_a_fault(stasis, &shared).context("after all containers were removed")?;
    wait_until_clear(|| Ok(difference(&before, &stasis.inventory()?)))
        .context("after all containers were removed")
}

fn one_without_a_fault(stasis: &StasisHost, shared: &SharedGates<'_>) -> Result<()> {
    let mut other = Subject::start(stasis, shared, "other", Workload::Counter, FIRST_PORT)?;
    other.goes_through_both()?;
    other.end()
}

impl Sequence<'_, '_> {
    /// One operation on each container, one after the other or all at once.
    fn round(&mut self) -> Result<()> {
        let company = [Company::Alone, Company::Among][self.random.usize(..2)];
        let chosen: Vec<(Verb, Fault)> = self
            .subjects
            .iter()
            .map(|subject| {
                let verb = Verb::any(&mut self.random, &subject.place);
                let fault = Fault::any(&mut self.random, verb, &subject.tags(), company);
                (verb, fault)
            })
            .collect();
        match company {
            Company::Alone => {
                for (subject, (verb, fault)) in self.subjects.iter_mut().zip(chosen) {
                    let outcome = subject.does(verb, fault)?;
                    note(subject, &outcome, self.tally)?;
                }
            }
            Company::Among => self.all_at_once(chosen)?,
        }
        for subject in &mut self.subjects {
            subject.forget_images()?;
        }
        Ok(())
    }

    fn all_at_once(&mut self, chosen: Vec<(Verb, Fault)>) -> Result<()> {
        let begun: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = self
                .subjects
                .iter_mut()
                .zip(chosen)
                .map(|(subject, (verb, fault))| scope.spawn(move || subject.begins(verb, fault)))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|over| over.map_err(|_| anyhow!("a thread panicked"))?)
                .collect::<Result<_>>()
        })?;
        for (subject, begun) in self.subjects.iter_mut().zip(begun) {
            let outcome = subject.is_judged(begun)?;
            note(subject, &outcome, self.tally)?;
        }
        Ok(())
    }

    /// All go on, one after the other, and are removed, which makes room for the others.
    fn end(mut self) -> Result<()> {
        self.subjects
            .sort_by_key(|subject| subject.place != Place::Runs);
        for mut subject in self.subjects {
            let about = format!("{} at the end", subject.id());
            subject.runs_again().context(about)?;
            subject.end()?;
        }
        let left = self.stasis.records()?;
        ensure!(left.is_empty(), "still recorded: {left}");
        Ok(())
    }
}

fn note(subject: &Subject<'_>, outcome: &Outcome, tally: &mut Tally) -> Result<()> {
    let (id, verb, victim) = (subject.id(), outcome.verb, outcome.fault.victim());
    let (fired, end) = (outcome.fired.join(", then "), outcome.end);
    eprintln!("  {id}: {verb}, {victim}: {fired}: {end}");
    // What is not faulty succeeds, unless there is no room.
    let is_faulty = !outcome.fired.is_empty();
    ensure!(
        is_faulty || matches!(end, End::Succeeded | End::FailedAsBefore),
        "{outcome:?}"
    );
    tally.add(outcome);
    Ok(())
}
