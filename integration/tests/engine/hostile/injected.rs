//! The injector's reads of a process, its writes there, and its helpers.
//!
//! A mapping of contents that the process keeps is tried in `memory/from_files/as_an_image.rs`.

use anyhow::Result;
use stasis_integration::host::HostKind;

use super::endured;
use super::trial::Harm;

#[test]
fn a_second_library_of_the_drivers_name() -> Result<()> {
    endured(HostKind::trixie()?, "false-library", Harm::None)
}

#[test]
fn a_damaged_library_of_the_drivers_name() -> Result<()> {
    endured(HostKind::sid_v2()?, "spoiled-library", Harm::None)
}

/// The process spoils its own code.
#[test]
fn code_that_is_overwritten() -> Result<()> {
    endured(HostKind::trixie()?, "overwritten-code", Harm::ToItself)
}

#[test]
fn a_job_that_is_overwritten() -> Result<()> {
    endured(HostKind::sid_v2()?, "overwritten-job", Harm::ToItself)
}

#[test]
fn slots_that_are_exchanged() -> Result<()> {
    endured(HostKind::trixie()?, "exchanged-slots", Harm::ToOthers)
}

#[test]
fn helpers_that_are_stopped() -> Result<()> {
    endured(HostKind::trixie()?, "helpers-stopped", Harm::ToOthers)
}

#[test]
fn helpers_that_are_killed() -> Result<()> {
    endured(HostKind::sid_v2()?, "helpers-killed", Harm::ToOthers)
}

#[test]
fn helpers_that_are_traced() -> Result<()> {
    endured(HostKind::trixie()?, "helpers-traced", Harm::ToOthers)
}

/// 128 GiB of empty mappings, whose storing would not end.
#[test]
fn files_that_are_named_as_ours() -> Result<()> {
    endured(HostKind::trixie()?, "false-contents", Harm::None)
}
