//! The driver's calls by pid, for processes that a test has started and not yet waited for.

use std::time::Duration;

use stasis_gpu::cuda::{CudaError, CudaState, Driver, GpuMap};
use stasis_linux::ProcessRef;

/// [`Driver`], whose calls take a process reference.
pub(crate) trait ByPid: Driver {
    fn state(&self, pid: i32) -> Result<CudaState, CudaError> {
        Driver::state(self, &held(pid)?)
    }

    fn restore_thread(&self, pid: i32) -> Result<i32, CudaError> {
        Driver::restore_thread(self, &held(pid)?)
    }

    fn lock(&self, pid: i32, timeout: Duration) -> Result<(), CudaError> {
        Driver::lock(self, &held(pid)?, timeout)
    }

    fn checkpoint(&self, pid: i32) -> Result<(), CudaError> {
        Driver::checkpoint(self, &held(pid)?)
    }

    fn restore(&self, pid: i32, map: &GpuMap) -> Result<(), CudaError> {
        Driver::restore(self, &held(pid)?, map)
    }

    fn unlock(&self, pid: i32) -> Result<(), CudaError> {
        Driver::unlock(self, &held(pid)?)
    }
}

impl<D: Driver + ?Sized> ByPid for D {}

fn held(pid: i32) -> Result<ProcessRef, CudaError> {
    ProcessRef::open(pid).unwrap().ok_or(CudaError::Ended)
}
