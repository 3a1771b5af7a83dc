//! The engine is killed while forked children give up the devices that they have inherited, and
//! before and after it.

use anyhow::{Context, Result, ensure};
use stasis_integration::campaign::fault::{AtCall, Fault, Program, What};
use stasis_integration::campaign::subject::{SharedGates, Subject};
use stasis_integration::campaign::verb::Verb;
use stasis_integration::campaign::workload::Workload;
use stasis_integration::faults::Hit;
use stasis_integration::faults::call::Class;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use crate::sweep::NEVER;

/// The children give up their devices in the first phase, their parent in the second.
const PHASES: [&str; 2] = ["lock", "gpu checkpoint"];
/// The start of the process that takes the devices, its work, and the stand-in's calls for a GPU
/// checkpoint.
const CALLS: [&str; 3] = ["clone", "mkdir", "pwrite"];
const LAST: usize = 10;

#[test]
fn they_can_be_checkpointed_whenever_the_engine_was_killed() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let gates = SharedGates::build(stasis, "")?;
    let mut forker = Subject::start(stasis, &gates, "forker", Workload::Forker, 10000)?;
    for verb in [Verb::LeaveRunning, Verb::Suspend] {
        has_no_child_in_its_hands(&mut forker, verb)?;
        for number in numbers(&mut forker, verb)? {
            forker.start_again()?;
            let outcome = forker.does(verb, killed_at(Class::Changes, number))?;
            eprintln!("{verb}, {number}: {:?}: {}", outcome.fired, outcome.end);
            forker.runs_again()?;
            let again = forker.goes_through_both();
            again.with_context(|| format!("{verb} was killed: {:?}", outcome.fired))?;
            forker.forget_images()?;
        }
    }
    forker.end()
}

/// The engine traces no child: a killed tracer may take a child along, and callers kill the engine.
fn has_no_child_in_its_hands(forker: &mut Subject<'_>, verb: Verb) -> Result<()> {
    forker.start_again()?;
    let outcome = forker.does(verb, killed_at(Class::Tracing, NEVER))?;
    ensure!(outcome.calls.is_empty(), "{verb}: {:?}", outcome.calls);
    Ok(())
}

/// Returns the numbers of the last of those calls.
fn numbers(forker: &mut Subject<'_>, verb: Verb) -> Result<Vec<u32>> {
    forker.start_again()?;
    let outcome = forker.does(verb, killed_at(Class::Changes, NEVER))?;
    // A suspend has no phases.
    let is_of_phase = |hit: &Hit| verb == Verb::Suspend || PHASES.contains(&hit.phase.as_str());
    let mut numbers: Vec<u32> = (1..)
        .zip(&outcome.calls)
        .filter(|(_, hit)| is_of_phase(hit) && CALLS.contains(&hit.call.name))
        .map(|(number, _)| number)
        .collect();
    ensure!(numbers.len() >= LAST, "{:?}", outcome.calls);
    Ok(numbers.split_off(numbers.len() - LAST))
}

fn killed_at(class: Class, number: u32) -> Fault {
    Fault::AtCall(AtCall {
        counted: Program::Engine,
        class,
        number,
        what: What::Kill,
    })
}
