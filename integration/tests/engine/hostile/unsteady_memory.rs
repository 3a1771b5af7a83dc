//! Mappings with false names, too many mappings, and ones that never stay the same.

use anyhow::{Result, bail, ensure};
use stasis_engine::error::kind::Kind;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::needs;

use super::trial::{Harm, Outcome, Trial};

endured! {
    fn a_sparse_file_that_is_called_vdso(trixie, "false-vdso", None);
    /// The program writes to its vdso, but cannot to the one that CRIU has restored: that ends it.
    fn a_vdso_whose_system_call_comes_and_goes(sid_v2, "rewritten-vdso", ToItself);
    fn nearly_as_many_mappings_as_there_may_be(trixie, "many-mappings", None);
    fn mappings_and_threads_that_come_and_go(trixie, "busy-mappings", ToOthers);
    /// The other process has no CUDA of its own, but the devices of the process whose memory it
    /// shares.
    fn mappings_that_another_process_changes(sid_v2, "busy-mappings-elsewhere", ToOthers);
}

#[test]
fn as_many_mappings_as_there_may_be() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let trial = Trial::start(stasis, "all-mappings", Harm::ToOthers)?;
    // The driver reports a lack of memory.
    let kind = match trial.suspend()? {
        Outcome::Refused(failure) => failure.kind,
        Outcome::Done => None,
    };
    assert_eq!(kind, Some(Kind::NoMappings));
    trial.endures()
}

/// A child of vfork(2) is in this state until it execs. Devices that are taken from it were mapped
/// by the other process.
#[test]
fn a_process_that_has_the_memory_of_another() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let trial = Trial::start(stasis, "same-memory", Harm::ToOthers)?;
    let with_devices = stasis.gpu_processes()?;
    let suspended = trial.suspend()?;
    ensure!(matches!(suspended, Outcome::Done), "{suspended:?}");
    trial.resume()?;
    assert_eq!(stasis.gpu_processes()?, with_devices);
    // CRIU would refuse the process once the GPU state is saved.
    let refused = trial.checkpoint("refused", &[])?;
    let Outcome::Refused(failure) = refused else {
        bail!("{refused:?}");
    };
    assert_contains(
        &failure.message,
        &[
            "same-memory: ",
            "it has the memory of process ",
            "nothing was changed",
        ],
    );
    let report = trial.is_looked_at()?;
    assert_eq!(report["blockers"][0]["kind"], "same-memory", "{report}");
    trial.endures()
}
