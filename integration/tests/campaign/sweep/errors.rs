//! System calls of the image's path fail: the disk is full, or answers with an error.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use stasis_integration::campaign::end::End;
use stasis_integration::campaign::fault::{AtCall, Fault, Program, What};
use stasis_integration::campaign::subject::{SharedGates, Subject};
use stasis_integration::campaign::verb::Verb;
use stasis_integration::campaign::workload::Workload;
use stasis_integration::faults::Hit;
use stasis_integration::faults::call::Class;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use crate::sweep::{Case, NEVER, sweep};

#[test]
fn of_the_disk() -> Result<()> {
    let of = |counted, error, verbs| Case {
        counted,
        class: Class::Files,
        what: What::Fail(error),
        verbs,
    };
    let cases = [
        of(Program::Engine, Errno::ENOSPC, &Verb::ALL),
        of(Program::Engine, Errno::EIO, &[Verb::Checkpoint]),
        of(Program::Criu, Errno::ENOSPC, &[Verb::LeaveRunning]),
        of(Program::Criu, Errno::EIO, &[Verb::Checkpoint]),
    ];
    sweep(HostKind::sid()?, "", Workload::Memcheck, &cases)
}

/// CRIU does not notice that it could not open such a file, and the image would not restore. The
/// post-dump action makes CRIU fail before it ends the tasks.
#[test]
fn of_the_contents_of_each_tmpfs() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let gates = SharedGates::build(stasis, "")?;
    let mut subject = Subject::start(stasis, &gates, "tmpfs", Workload::Memcheck, 10000)?;
    for verb in [Verb::Checkpoint, Verb::LeaveRunning] {
        let calls = subject.does(verb, criu_fails_at(NEVER))?.calls;
        subject.start_again()?;
        let mut numbered = (1..).zip(&calls).filter(|(_, hit)| opens_tmpfs(hit));
        let (first, _) = numbered.next().context("no tmpfs is dumped")?;
        let (last, _) = numbered.last().context("only one tmpfs is dumped")?;
        let mut seen = 0;
        // Call numbers may differ by one or two from one dump to the next.
        for number in first..=last {
            let outcome = subject.does(verb, criu_fails_at(number))?;
            eprintln!("{verb}, {number}: {:?}: {}", outcome.fired, outcome.end);
            subject.runs_again()?;
            if outcome.fired.iter().any(|hit| hit.contains("/tmpfs-dev-")) {
                ensure!(outcome.end == End::FailedAsBefore, "{outcome:?}");
                ensure!(outcome.said.contains("/tmpfs-dev-"), "{}", outcome.said);
                seen += 1;
            }
        }
        ensure!(seen > 0, "no tmpfs between {first} and {last}: {calls:?}");
        subject.goes_through_both()?;
        subject.forget_images()?;
    }
    subject.end()
}

fn opens_tmpfs(hit: &Hit) -> bool {
    let path = hit.call.path.as_deref().map(Path::to_string_lossy);
    hit.call.name == "openat" && path.is_some_and(|path| path.contains("/tmpfs-dev-"))
}

fn criu_fails_at(number: u32) -> Fault {
    Fault::AtCall(AtCall {
        counted: Program::Criu,
        class: Class::Files,
        number,
        what: What::Fail(Errno::EIO),
    })
}
