//! Peer access between two GPUs inside one process.

use crate::by_pid::ByPid;
use anyhow::Result;
use stasis_gpu::cuda::{CudaError, CudaState, GpuMap};
use stasis_integration::needs;

use crate::workload::Workload;
use crate::{bring_back, driver, put_away};

#[test]
fn a_process_with_peer_access_and_large_memory_is_lost_by_its_restore() -> Result<()> {
    needs!(TwoGpus);
    let peers = Workload::peers(512, &[])?;
    assert_eq!(peers.ask()?, "101 201");
    let pid = peers.pid();
    put_away(pid)?;
    let restore = || driver().restore(pid, &GpuMap::identity());
    assert_eq!(restore(), Err(CudaError::InvalidValue));
    assert_eq!(restore(), Err(CudaError::OperatingSystem));
    assert_eq!(driver().state(pid), Ok(CudaState::Checkpointed));
    Ok(())
}

#[test]
fn it_comes_back_with_small_memory_or_when_peer_access_was_disabled() -> Result<()> {
    needs!(TwoGpus);
    for (mib, options) in [(256, &[][..]), (512, &["disabled"])] {
        let peers = Workload::peers(mib, options)?;
        assert_eq!(peers.ask()?, "101 201");
        for counts in ["102 202", "103 203"] {
            put_away(peers.pid())?;
            bring_back(peers.pid())?;
            assert_eq!(peers.ask()?, counts, "{mib} MiB {options:?}");
        }
    }
    Ok(())
}
