//! Each program of an operation is killed at its steps, one after the other; with
//! `STASIS_STEPS=all` at each system call with which it changes something.
//!
//! `STASIS_VERB` and `STASIS_VICTIM` choose an operation and a victim by their names,
//! `STASIS_STEP=K` the K-th call alone.

use anyhow::Result;
use nix::sys::signal::Signal;
use stasis_integration::campaign::fault::{Program, What};
use stasis_integration::campaign::verb::Verb;
use stasis_integration::campaign::workload::Workload;
use stasis_integration::faults::call::Class;
use stasis_integration::host::HostKind;

use crate::sweep::{Case, sweep};

/// The operations that take most of all steps.
const MOST: &[Verb] = &[Verb::LeaveRunning, Verb::Restore];
const OF_SHARING: &[Verb] = &[Verb::LeaveRunning, Verb::Restore, Verb::Suspend, Verb::Wake];
const OF_CRIU: &[Verb] = &[Verb::Checkpoint, Verb::LeaveRunning, Verb::Restore];

#[test]
fn of_the_engine() -> Result<()> {
    let cases = [of_engine(What::Kill, &Verb::ALL)];
    sweep(HostKind::sid()?, "", Workload::Memcheck, &cases)
}

#[test]
fn of_the_keeper_and_the_caller() -> Result<()> {
    let cases = [
        of_engine(What::KillKeeper, MOST),
        of_engine(What::KillThenKeeper(3), MOST),
        of_engine(What::KillThenKeeper(20), MOST),
        of_engine(What::KillUpToRecover(3, 12), &[Verb::LeaveRunning]),
        of_engine(What::Signal(Signal::SIGTERM), &[Verb::Suspend]),
        of_engine(What::KillCaller, &[Verb::LeaveRunning]),
    ];
    sweep(HostKind::trixie()?, "", Workload::Memcheck, &cases)
}

/// Processes that share GPU memory share it again, whichever process brings them back.
#[test]
fn of_those_that_share_memory() -> Result<()> {
    let cases = [
        of_engine(What::Kill, OF_SHARING),
        of_engine(What::KillThenKeeper(3), &[Verb::LeaveRunning]),
    ];
    sweep(HostKind::trixie()?, "", Workload::Sharing, &cases)
}

#[test]
fn of_runc_and_criu() -> Result<()> {
    let of = |counted, what| Case {
        counted,
        class: Class::Changes,
        what,
        verbs: OF_CRIU,
    };
    let cases = [of(Program::Runc, What::Kill), of(Program::Criu, What::Kill)];
    sweep(HostKind::sid_v2()?, "", Workload::Memcheck, &cases)
}

fn of_engine(what: What, verbs: &'static [Verb]) -> Case {
    Case {
        counted: Program::Engine,
        class: Class::Changes,
        what,
        verbs,
    }
}
