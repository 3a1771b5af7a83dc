//! A random sequence of operations on several containers of one host.

use std::env;
use std::mem;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fastrand::Rng;

use crate::campaign::chance::{Company, Victims};
use crate::campaign::end::End;
use crate::campaign::fault::Fault;
use crate::campaign::images::Images;
use crate::campaign::judge::Outcome;
use crate::campaign::lives;
use crate::campaign::subject::{SharedGates, Subject};
use crate::campaign::tally::Tally;
use crate::campaign::verb::{Place, Verb};
use crate::campaign::workload::Workload;
use crate::check::wait::wait_until_clear;
use crate::container::memory_container::difference;
use crate::host::HostKind;
use crate::host::installed::StasisHost;

/// Deadlines so short that a container that cannot be locked, or has no room, fails soon.
const SETTINGS: &str = "[deadlines]\nlock_ms = 4000\nroom_s = 1\nstalled_s = 20\n";
/// The memory that a container may need beside the contexts of its processes.
const SPARE_MIB: u32 = 16;
const FIRST_PORT: u16 = 10000;
const NAMES: [&str; 3] = ["ada", "bob", "cyd"];

/// A sequence.
#[derive(Debug)]
struct Sequence<'l, 't> {
    stasis: &'l StasisHost,
    random: Rng,
    subjects: Vec<Subject<'l>>,
    victims: Victims,
    tally: &'t mut Tally,
}

/// Returns the hosts of sequences, unless others are chosen.
pub fn hosts() -> Result<Vec<HostKind>> {
    Ok(vec![
        HostKind::sid()?,
        HostKind::trixie()?,
        HostKind::sid_v2()?,
    ])
}

/// Carries out the sequence of a seed in a host of its own, of one of these kinds, and counts its
/// outcomes.
pub fn sequence(seed: u64, kinds: &[HostKind], victims: Victims, tally: &mut Tally) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let stasis = StasisHost::of(kinds[random.usize(..kinds.len())])?;
    let result = in_host(seed, random, &stasis, (victims, tally));
    if result.is_err() && env::var_os("KEEP").is_some() {
        let init = stasis.host.init();
        eprintln!("{result:?}\nnsenter --all --target {init} shows the host; interrupt to end it");
        loop {
            thread::park();
        }
    }
    result
}

fn in_host(
    seed: u64,
    mut random: Rng,
    stasis: &StasisHost,
    (victims, tally): (Victims, &mut Tally),
) -> Result<()> {
    let _containerd = stasis.containerd()?;
    let settings = match victims {
        Victims::Stops => &[lives::SETTINGS, SETTINGS].concat(),
        _ => SETTINGS,
    };
    let shared = SharedGates::build(stasis, settings)?;
    // Files that an operation leaves for the next one, or for it to remove, are no leak.
    one_without_a_fault(stasis, &shared, victims)?;
    let before = stasis.inventory()?;
    let count = random.usize(2..=NAMES.len());
    let mut subjects = Vec::new();
    let chosen = env::var("WORKLOAD").ok();
    let chosen = chosen.as_deref().map(Workload::named).transpose()?;
    for (name, port) in NAMES.into_iter().zip(FIRST_PORT..).take(count) {
        let any = Workload::any(&mut random);
        let workload = chosen.unwrap_or(any);
        eprintln!("SEED={seed}: {name} is {workload:?}");
        let subject = Subject::start(stasis, &shared, name, workload, port)?;
        subjects.push(match victims {
            Victims::Images => subject.writing(Images::Together),
            Victims::Stops => subject.saved_at_stops()?,
            Victims::Programs | Victims::Movers => subject,
        });
    }
    let needs: Vec<u32> = subjects.iter().map(Subject::gpu_mib).collect();
    let (most, all) = (needs.iter().max().copied(), needs.iter().sum());
    if let Some(most) = most.filter(|_| is_short(seed) && victims != Victims::Stops) {
        let mib = random.u32(most + SPARE_MIB..all);
        eprintln!("SEED={seed}: the GPU has {mib} MiB, and all of them need {all}");
        stasis.set_gpu_memory(Some(mib))?;
    }
    let mut sequence = Sequence {
        stasis,
        random,
        subjects,
        victims,
        tally,
    };
    // A life has three operations, and the first one no image.
    let rounds = match victims {
        Victims::Stops => 25..35,
        _ => 6..12,
    };
    for _ in 0..sequence.random.u32(rounds) {
        sequence.round()?;
    }
    sequence.end()?;
    one_without_a_fault(stasis, &shared, victims).context("after all containers were removed")?;
    wait_until_clear(|| Ok(difference(&before, &stasis.inventory()?)))
        .context("after all containers were removed")
}

/// Whether the GPU has too little room for all containers: in every third sequence, or in all.
fn is_short(seed: u64) -> bool {
    seed.is_multiple_of(3) || env::var("ROOM").is_ok_and(|room| room == "short")
}

fn one_without_a_fault(
    stasis: &StasisHost,
    shared: &SharedGates<'_>,
    victims: Victims,
) -> Result<()> {
    let mut other = Subject::start(stasis, shared, "other", Workload::Counter, FIRST_PORT)?;
    other.goes_through_both()?;
    if victims == Victims::Stops {
        other = other.saved_at_stops()?;
        for verb in [Verb::Stop, Verb::Create, Verb::Start] {
            other.succeeds(verb)?;
        }
    }
    other.end()
}

impl Sequence<'_, '_> {
    /// Carries out one operation on each container, one after the other or all at once.
    fn round(&mut self) -> Result<()> {
        for subject in &mut self.subjects {
            subject.looks_again()?;
        }
        let company = [Company::Alone, Company::Among][self.random.usize(..2)];
        // A keeper that waits for the caller's resume makes no call at which it could be killed.
        let is_short = self.stasis.is_short_of_room()?;
        let is_endless = |paused, fault: &Fault| is_short && paused && fault.kills_keeper();
        let chosen: Vec<(Verb, Fault)> = self
            .subjects
            .iter()
            .map(|subject| {
                let verb = match self.victims {
                    Victims::Stops => Verb::any_with_stops(&mut self.random, &subject.place),
                    _ => Verb::any(&mut self.random, &subject.place),
                };
                let (tags, victims) = (subject.tags(), self.victims);
                let fault = Fault::any(&mut self.random, verb, &tags, company, victims);
                let paused = verb == Verb::Paused || subject.place == Place::Paused;
                let fault = Some(fault).filter(|fault| !is_endless(paused, fault));
                (verb, fault.unwrap_or(Fault::None))
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

    /// Lets all go on, and removes them, which makes room for the others.
    fn end(mut self) -> Result<()> {
        while !self.subjects.is_empty() {
            let count = self.subjects.len();
            for mut subject in mem::take(&mut self.subjects) {
                let about = format!("{} at the end", subject.id());
                match subject.comes_back().context(about)? {
                    Place::Runs => subject.end()?,
                    _ => self.subjects.push(subject),
                }
            }
            if self.subjects.len() == count {
                self.one_gets_its_room()?;
            }
        }
        let left = self.stasis.records()?;
        ensure!(left.is_empty(), "still recorded: {left}");
        Ok(())
    }

    fn one_gets_its_room(&mut self) -> Result<()> {
        wait_until_clear(|| {
            for subject in &mut self.subjects {
                subject.looks_again()?;
            }
            let runs = self
                .subjects
                .iter()
                .any(|subject| subject.place == Place::Runs);
            Ok((!runs).then(|| format!("none of {} has come back", self.subjects.len())))
        })
    }
}

fn note(subject: &Subject<'_>, outcome: &Outcome, tally: &mut Tally) -> Result<()> {
    let (id, verb, victim) = (subject.id(), outcome.verb, outcome.fault.victim());
    let (fired, end) = (outcome.fired.join(", then "), outcome.end);
    let said = match end {
        End::Succeeded => "",
        _ => outcome.said.trim(),
    };
    eprintln!(
        "  {id}: {verb}, {victim}: {fired}: {end} ({} calls) {said}",
        outcome.calls.len()
    );
    let is_faulty = !outcome.fired.is_empty();
    ensure!(is_faulty || end.needs_no_fault(), "{outcome:?}");
    tally.add(outcome);
    Ok(())
}
