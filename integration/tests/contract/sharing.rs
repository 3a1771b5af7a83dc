//! GPU memory that a process imports from another one.

use crate::by_pid::ByPid;
use anyhow::{Context, Result};
use stasis_gpu::cuda::{CudaError, CudaState, GpuMap};
use stasis_integration::needs;
use stasis_linux::ProcessRef;

use crate::workload::Workload;
use crate::{bring_back, driver, put_away};

#[test]
fn an_importer_is_lost_by_its_restore_and_the_owner_is_not() -> Result<()> {
    needs!(TwoGpus);
    for options in [&[][..], &["released"]] {
        importer_is_lost(&Workload::sharing(2, options)?, CudaError::NotSupported)
            .with_context(|| format!("{options:?}"))?;
    }
    Ok(())
}

#[test]
fn so_it_is_with_memory_that_was_opened_by_a_legacy_handle() -> Result<()> {
    needs!(TwoGpus);
    importer_is_lost(&Workload::sharing(2, &["legacy"])?, CudaError::InvalidValue)
}

#[test]
fn virtual_memory_that_is_not_shared_comes_back_again_and_again() -> Result<()> {
    needs!(TwoGpus);
    let sharing = Workload::sharing(64, &["own"])?;
    assert_eq!(sharing.ask()?, "101 201");
    for counts in ["102 202", "103 203"] {
        for pid in members(&sharing)? {
            put_away(pid)?;
            bring_back(pid)?;
        }
        assert_eq!(sharing.ask()?, counts);
    }
    Ok(())
}

/// The importer is lost. The owner goes on, also once the importer has ended.
fn importer_is_lost(sharing: &Workload, by: CudaError) -> Result<()> {
    assert_eq!(sharing.ask()?, "101 101");
    assert_eq!(sharing.ask()?, "102 102");
    let [owner, importer] = members(sharing)?;
    put_away(importer)?;
    put_away(owner)?;
    bring_back(owner)?;
    let restore = || driver().restore(importer, &GpuMap::identity());
    assert_eq!(restore(), Err(by));
    assert_eq!(restore(), Err(CudaError::OperatingSystem));
    assert_eq!(driver().state(importer), Ok(CudaState::Checkpointed));
    let process = ProcessRef::open(importer)?.context("the importer has ended")?;
    process.kill()?;
    assert_eq!(sharing.ask()?, "103 ended");
    Ok(())
}

/// Returns the owner and the importer.
pub(crate) fn members(sharing: &Workload) -> Result<[i32; 2]> {
    let children = sharing.children()?;
    children.try_into().ok().context("not two processes")
}
