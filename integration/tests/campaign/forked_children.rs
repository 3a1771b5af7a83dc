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

/// In the first they give up their devices, in the second their parent does.
const PHASES: [&str; 2] = ["lock", "gpu checkpoint"];
/// Calls that change another process: two for each child that gives devices up, and two for each of
/// three calls of the driver for its GPU checkpoint.
const CALLS: [&str; 2] = ["pwrite", "kill"];
const LAST: usize = 10;

#[test]
fn they_can_be_checkpointed_whenever_the_engine_was_killed() -> Result<()> {
    let stasis = &StasisHost::of(HostKind::sid_v2()?)?;
    needs!(StandIn);
    let _containerd = stasis.containerd()?;
    let gates = SharedGates::build(stasis, "")?;
    let mut forker = Subject::start(stasis, &gates, "forker", Workload::Forker, 10000)?;
    for verb in [Verb::LeaveRunning, Verb::Suspend] {
        for number in numbers(&mut forker, verb)? {
            forker.start_again()?;
            let outcome = forker.does(verb, killed_at(number))?;
            eprintln!("{verb}, {number}: {:?}: {}", outcome.fired, outcome.end);
            forker.runs_again()?;
            let again = forker.goes_through_both();
            again.with_context(|| format!("{verb} was killed: {:?}", outcome.fired))?;
            forker.forget_images()?;
        }
    }
    forker.end()
}

fn numbers(forker: &mut Subject<'_>, verb: Verb) -> Result<Vec<u32>> {
    forker.start_again()?;
    let outcome = forker.does(verb, killed_at(u32::MAX))?;
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

fn killed_at(number: u32) -> Fault {
    Fault::AtCall(AtCall {
        counted: Program::Engine,
        class: Class::Changes,
        number,
        what: What::Kill,
    })
}
