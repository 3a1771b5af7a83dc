//! The engine's assumptions about a CUDA driver, as cases that both the stand-in and a real driver
//! have to pass.
//!
//! On a machine with a GPU its own driver is tested. The test also runs from a copied binary,
//! without cargo and gcc: `STASIS_NATIVE` is then the directory of gcc's output, and
//! `STASIS_LIBCUDA` and `STASIS_NVML` may name the driver's libraries.

#![allow(clippy::unwrap_used)]

mod blockers;
mod by_pid;
mod caller;
mod copied_contents;
mod criu_dump;
mod faults;
mod forked;
mod gpu_contents;
mod gpus;
mod imports;
mod nodes;
mod one_process;
mod peers;
mod ranks;
mod sharing;
mod slots;
mod survey;
mod workload;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use stasis_gpu::cuda::{CudaDriver, CudaError, GpuMap};

use by_pid::ByPid;
use stasis_integration::host::c_build;

/// Far more than any lock takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough to notice an answer that must not come.
const MOMENT: Duration = Duration::from_millis(300);

/// The driver's libraries: the variable that may name one, and the stand-in's file.
const LIBCUDA: (&str, &str) = ("STASIS_LIBCUDA", "libcuda.so.1");
const NVML: (&str, &str) = ("STASIS_NVML", "libnvidia-ml.so.1");

/// Returns the library to use; `None` for the first one that the loader finds.
fn library((variable, file): (&str, &str)) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.or_else(|| {
        let standin = || c_build::build().unwrap().join("lib64").join(file);
        (!c_build::has_gpu()).then(standin)
    })
}

fn driver() -> &'static CudaDriver {
    static DRIVER: OnceLock<CudaDriver> = OnceLock::new();
    DRIVER.get_or_init(|| CudaDriver::open(library(LIBCUDA).as_deref()).unwrap())
}

fn lock(pid: i32) -> Result<(), CudaError> {
    driver().lock(pid, PATIENCE)
}

/// Takes a RUNNING process to CHECKPOINTED.
fn put_away(pid: i32) -> Result<(), CudaError> {
    lock(pid)?;
    driver().checkpoint(pid)
}

/// Takes a CHECKPOINTED process to RUNNING.
fn bring_back(pid: i32) -> Result<(), CudaError> {
    driver().restore(pid, &GpuMap::identity())?;
    driver().unlock(pid)
}
