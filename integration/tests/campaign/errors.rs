//! System calls of the image's path fail: the disk is full, or answers with an error.

use anyhow::Result;
use nix::errno::Errno;
use stasis_integration::campaign::fault::{Program, What};
use stasis_integration::campaign::verb::Verb;
use stasis_integration::faults::call::Class;
use stasis_integration::host::HostKind;

use crate::sweep::{Case, sweep};

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
    sweep(HostKind::sid()?, "bulk_memory.minimum_mib = 1\n", &cases)
}
