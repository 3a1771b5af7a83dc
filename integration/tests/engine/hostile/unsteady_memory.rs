//! Mappings that lie, are too many, or never stay as they are.

use anyhow::Result;
use stasis_integration::host::HostKind;

use super::endured;
use super::trial::Harm;

#[test]
fn a_sparse_file_that_is_called_vdso() -> Result<()> {
    endured(HostKind::trixie()?, "false-vdso", Harm::ToOthers)
}

/// It is written to by the program, and what CRIU has brought back cannot be: that ends it.
#[test]
fn a_vdso_whose_system_call_comes_and_goes() -> Result<()> {
    endured(HostKind::sid_v2()?, "rewritten-vdso", Harm::ToItself)
}

#[test]
fn nearly_as_many_mappings_as_there_may_be() -> Result<()> {
    endured(HostKind::trixie()?, "many-mappings", Harm::ToOthers)
}

#[test]
fn as_many_mappings_as_there_may_be() -> Result<()> {
    endured(HostKind::sid_v2()?, "all-mappings", Harm::ToOthers)
}

#[test]
fn mappings_and_threads_that_come_and_go() -> Result<()> {
    endured(HostKind::trixie()?, "busy-mappings", Harm::ToOthers)
}

/// To the driver it is two processes with one memory.
#[test]
fn mappings_that_another_process_changes() -> Result<()> {
    endured(
        HostKind::sid_v2()?,
        "busy-mappings-elsewhere",
        Harm::ToItself,
    )
}
