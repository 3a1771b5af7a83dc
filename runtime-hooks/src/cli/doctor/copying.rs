//! The copying of GPU contents on this machine: by the driver, or by threads of ours, too.

use stasis_config::{GpuCheckpointPath, Settings};
use stasis_injection::slots::BuildId;
use stasis_injection::worker_count;
use stasis_linux::{ProcessRef, error_chain};

use super::{Finding, ok, warning};
use crate::gpu_path::self_test::{self, Verdict};

/// Tries this machine's build of libcuda, if its result is not known yet.
pub(super) fn finding(settings: &Settings) -> Finding {
    let why = match settings.gpu_checkpoint.path {
        GpuCheckpointPath::Driver => "the settings say so (gpu_checkpoint.path)".to_owned(),
        GpuCheckpointPath::Auto => match self_test::run(settings) {
            Ok((libcuda, Verdict::Passed)) => return ok("copying", threads(&libcuda)),
            Ok((libcuda, Verdict::PassedOnceLoaded { why })) => {
                let threads = threads(&libcuda);
                return ok(
                    "copying",
                    format!(
                        "{threads}; a restore reads them from disk before it asks the driver: {why}"
                    ),
                );
            }
            Ok((libcuda, Verdict::NotPassed { why })) => {
                format!("build {libcuda} of libcuda has not passed the self-test: {why}")
            }
            Err(error) => format!("the self-test cannot be run: {}", error_chain(&error)),
        },
    };
    warning(
        "copying",
        format!("the driver alone copies GPU contents, with one thread: {why}"),
        "checkpoints work, and are slower",
    )
}

/// For a process that may use all of the machine.
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
