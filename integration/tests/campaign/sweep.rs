//! One fault at each step of an operation, one after the other.

mod errors;
mod forked_children;
mod kills;

use std::collections::BTreeSet;
use std::env;

use anyhow::{Context, Result, ensure};
use stasis_integration::campaign::fault::{AtCall, Fault, Program, What};
use stasis_integration::campaign::judge::Outcome;
use stasis_integration::campaign::subject::{SharedGates, Subject};
use stasis_integration::campaign::tally::Tally;
use stasis_integration::campaign::verb::Verb;
use stasis_integration::campaign::workload::Workload;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::memory_container::{Inventory, difference};
use stasis_integration::faults::call::Class;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

/// More calls than any operation makes.
pub(crate) const NEVER: u32 = u32::MAX;

/// A victim, and the operations during which it is hit.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) counted: Program,
    pub(crate) class: Class,
    pub(crate) what: What,
    /// The operations of every run; `STASIS_STEPS=all` takes all.
    pub(crate) verbs: &'static [Verb],
}

/// Runs the cases in one host, with these settings.
pub(crate) fn sweep(
    kind: HostKind,
    settings: &str,
    workload: Workload,
    cases: &[Case],
) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let gates = SharedGates::build(stasis, settings)?;
    let mut subject = Subject::start(stasis, &gates, "victim", workload, 10000)?;
    subject.goes_through_both()?;
    let before = stasis.inventory()?;
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    for case in cases {
        let fault = AtCall {
            counted: case.counted,
            class: case.class,
            number: NEVER,
            what: case.what,
        };
        for verb in Verb::ALL {
            let has_turn = case.verbs.contains(&verb) || stride()?.is_some() && case.may_hit(verb);
            let is_chosen = is_chosen("STASIS_VERB", verb.name())
                && is_chosen("STASIS_VICTIM", &fault.victim());
            if has_turn && is_chosen {
                let mut sweep = Sweep {
                    subject: &mut subject,
                    verb,
                    fault: fault.clone(),
                    before: &before,
                    tally: &mut tally,
                    failures: &mut failures,
                };
                sweep.run()?;
            }
        }
    }
    println!("{tally}");
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    subject.end()
}

impl Case {
    fn may_hit(&self, verb: Verb) -> bool {
        self.counted == Program::Engine || verb.makes_image() || verb == Verb::Restore
    }
}

/// Returns the first call and the distance between calls. `None`: some calls of each step.
fn stride() -> Result<Option<(u32, usize)>> {
    let Ok(steps) = env::var("STASIS_STEPS") else {
        return Ok(None);
    };
    if steps == "all" {
        return Ok(Some((1, 1)));
    }
    let part = steps.split_once('/').context("STASIS_STEPS is no K/N")?;
    Ok(Some((part.0.parse()?, part.1.parse()?)))
}

fn is_chosen(variable: &str, name: &str) -> bool {
    env::var(variable).map_or(true, |chosen| name == chosen)
}

/// One operation and one victim.
struct Sweep<'s, 'l> {
    subject: &'s mut Subject<'l>,
    verb: Verb,
    fault: AtCall,
    before: &'s Inventory,
    tally: &'s mut Tally,
    /// The failures so far: one must not hide the others.
    failures: &'s mut Vec<String>,
}

/// Whether the operation reached the fault's call.
#[derive(Debug, PartialEq, Eq)]
enum Fired {
    Yes,
    No,
}

impl Sweep<'_, '_> {
    fn run(&mut self) -> Result<()> {
        if let Ok(number) = env::var("STASIS_STEP") {
            return self.at(number.parse()?).map(drop);
        }
        if let Some((first, apart)) = stride()? {
            for number in (first..).step_by(apart) {
                if self.at(number)? == Fired::No {
                    return Ok(());
                }
            }
        }
        for number in self.some_of_each_step()? {
            self.at(number)?;
        }
        Ok(())
    }

    /// Returns call numbers: the middle of each phase, the first one after the keeper's record is
    /// made or removed, or the request for staged contents is removed, and the ones that fail to
    /// record an intent.
    fn some_of_each_step(&mut self) -> Result<BTreeSet<u32>> {
        let calls = self.try_at(NEVER)?.calls;
        ensure!(!calls.is_empty(), "no calls");
        let mut chosen = BTreeSet::new();
        let mut phases: Vec<(String, u32, u32)> = Vec::new();
        for (number, hit) in (1..).zip(calls) {
            let path = hit.call.path.unwrap_or_default();
            let moves = ["rename", "unlink", "unlinkat"].contains(&hit.call.name);
            let of_staged = hit.phase == "store staged" && path.ends_with("memory-request.json");
            if moves && (path.ends_with("undo.json") || of_staged) {
                chosen.insert(number + 1);
            }
            let fails = matches!(self.fault.what, What::Fail(_));
            if fails && hit.call.name == "rename" && path.ends_with("intent.json") {
                chosen.insert(number);
            }
            match phases.last_mut() {
                Some((phase, _, last)) if *phase == hit.phase => *last = number,
                _ => phases.push((hit.phase, number, number)),
            }
        }
        let middle = |(_, first, last): &(String, u32, u32)| u32::midpoint(*first, *last);
        chosen.extend(phases.iter().map(middle));
        Ok(chosen)
    }

    /// Injects the fault at a call; afterwards everything works, and nothing is left.
    fn at(&mut self, number: u32) -> Result<Fired> {
        let (verb, victim) = (self.verb.name(), self.fault.victim());
        match self.try_at(number) {
            Ok(outcome) if outcome.fired.is_empty() => Ok(Fired::No),
            Ok(_) => Ok(Fired::Yes),
            Err(error) => {
                let failure = format!(
                    "STASIS_VERB={verb:?} STASIS_VICTIM={victim:?} STASIS_STEP={number} repeats \
                     this: {error:#}"
                );
                eprintln!("FAILED {failure}");
                self.failures.push(failure);
                self.subject.start_over()?;
                Ok(Fired::Yes)
            }
        }
    }

    fn try_at(&mut self, number: u32) -> Result<Outcome> {
        if let Some(before) = self.verb.before() {
            self.subject.succeeds(before)?;
        }
        let fault = Fault::AtCall(AtCall {
            number,
            ..self.fault.clone()
        });
        let outcome = self.subject.does(self.verb, fault)?;
        let (fired, end) = (outcome.fired.join(", then "), outcome.end);
        let (verb, victim) = (self.verb, self.fault.victim());
        eprintln!("{verb}, {victim}, {number}: {fired}: {end}");
        self.subject.runs_again().context("afterwards")?;
        self.subject.goes_through_both().context("afterwards")?;
        self.subject.forget_images()?;
        wait_until_clear(|| {
            let now = self.subject.host().inventory()?;
            Ok(difference(self.before, &now))
        })?;
        self.tally.add(&outcome);
        Ok(outcome)
    }
}
