//! How GPU contents are copied on this machine: by the driver alone, or by our threads too.

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_gpu::gpu_path::self_test::{self, Surveys, Verdict};
use stasis_injection::slots::BuildId;
use stasis_injection::worker_count;
use stasis_linux::{ProcessRef, error_chain};

use super::{Finding, ok, warning};

/// Tries this machine's build of libcuda, if its result is not known yet.
pub(super) fn finding(settings: &Settings) -> Finding {
    let why = match self_test::run(settings) {
        Ok((libcuda, tried)) => {
            let surveys = surveys(&tried.surveys);
            match (settings.gpu_checkpoint.path, tried.copying) {
                (GpuCheckpointPath::Driver, _) => {
                    format!("the settings say so (gpu_checkpoint.path){surveys}")
                }
                (GpuCheckpointPath::Auto, Verdict::Passed) => {
                    return ok("copying", threads(&libcuda) + &surveys);
                }
                (GpuCheckpointPath::Auto, Verdict::PassedOnceLoaded { why }) => {
                    let threads = threads(&libcuda);
                    let until = "a restore reads them from disk before it asks the driver";
                    return ok("copying", format!("{threads}; {until}: {why}{surveys}"));
                }
                (GpuCheckpointPath::Auto, Verdict::NotPassed { why }) => {
                    format!("build {libcuda} of libcuda has not passed the self-test: {why}")
                }
            }
        }
        Err(error) => format!("the self-test cannot be run: {}", error_chain(&error)),
    };
    warning(
        "copying",
        format!("the driver alone copies GPU contents, with one thread: {why}"),
        "checkpoints work, and are slower",
    )
}

/// Describes how sharing between processes of jobs on several GPUs is determined.
fn surveys(surveys: &Surveys) -> String {
    match surveys {
        Surveys::Passed => "; a survey at the lock shows what processes share".to_owned(),
        Surveys::NotPassed { why } => format!("; stasis guesses what processes share: {why}"),
    }
}

/// Describes the workers for a process that may use all of the machine.
fn threads(libcuda: &BuildId) -> String {
    let own = i32::try_from(std::process::id()).map(ProcessRef::open);
    let workers = match own {
        Ok(Ok(Some(own))) => worker_count(&own),
        _ => 0,
    };
    format!(
        "GPU contents are copied by {workers} workers beside the driver's thread (libcuda \
         {libcuda} has passed the self-test)"
    )
}
