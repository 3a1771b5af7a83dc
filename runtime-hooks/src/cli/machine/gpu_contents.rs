//! Who copies GPU contents on this machine.

use std::fmt;

use serde::Serialize;
use stasis_config::{GpuCheckpointPath, Settings};
use stasis_injection::slots::BuildId;
use stasis_injection::worker_count;
use stasis_linux::{ProcessRef, error_chain};

use crate::gpu_path::self_test::{self, Verdict};

/// Who copies GPU contents between the driver's buffers and host memory.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Copying {
    /// Threads of ours beside the driver's.
    Threads {
        /// How many more, for a process that may use all of the machine.
        workers: u64,
        /// The build of libcuda that has passed the self-test.
        libcuda: BuildId,
        /// Why contents are read from disk before the driver is asked for them, and not beside it.
        #[serde(skip_serializing_if = "Option::is_none")]
        loads_first: Option<String>,
    },
    /// The driver's one thread.
    Driver {
        /// Why nobody else.
        why: String,
    },
}

impl Copying {
    /// Tries this machine's build of libcuda, if its result is not known yet.
    pub(super) fn find_out(settings: &Settings) -> Self {
        let why = match settings.gpu_checkpoint.path {
            GpuCheckpointPath::Driver => "the settings say so (gpu_checkpoint.path)".to_owned(),
            GpuCheckpointPath::Auto => match self_test::run(settings) {
                Ok((libcuda, Verdict::Passed)) => return Self::threads(libcuda, None),
                Ok((libcuda, Verdict::PassedOnceLoaded { why })) => {
                    return Self::threads(libcuda, Some(why));
                }
                Ok((libcuda, Verdict::NotPassed { why })) => {
                    format!("build {libcuda} of libcuda has not passed the self-test: {why}")
                }
                Err(error) => format!("the self-test cannot be run: {}", error_chain(&error)),
            },
        };
        Self::Driver { why }
    }

    fn threads(libcuda: BuildId, loads_first: Option<String>) -> Self {
        Self::Threads {
            workers: workers(),
            libcuda,
            loads_first,
        }
    }

    /// What is done in another way.
    pub(super) fn fall_back(&self) -> Option<String> {
        match self {
            Self::Threads { loads_first, .. } => loads_first.as_ref().map(|why| {
                format!("a restore reads GPU contents from disk before it asks the driver: {why}")
            }),
            Self::Driver { why } => Some(format!(
                "the driver alone copies GPU contents, with one thread: {why}"
            )),
        }
    }
}

impl fmt::Display for Copying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads {
                workers, libcuda, ..
            } => write!(
                f,
                "GPU contents are copied by {workers} workers beside the driver's thread (libcuda \
                 {libcuda} has passed the self-test)"
            ),
            Self::Driver { .. } => f.write_str("GPU contents are copied by the driver"),
        }
    }
}

fn workers() -> u64 {
    let own = i32::try_from(std::process::id()).map(ProcessRef::open);
    match own {
        Ok(Ok(Some(own))) => worker_count(&own),
        _ => 0,
    }
}
