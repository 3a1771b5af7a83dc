//! The process that is tried: it fills some GPU memory, and answers each request whether all of it
//! is right. It ends with its input.

use std::io::{self, BufRead};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stasis_host::respawn::{self, say};
use stasis_linux::error_chain;

use super::device::{DeviceError, DeviceMemory};
use crate::cuda::{GpuUuid, end_process};

/// The first argument of that process; neither runc nor crun has this verb.
pub(super) const VERB: &str = "stasis-gpu-self-test";

/// The job of that process.
#[derive(Debug, Serialize, Deserialize)]
pub struct SelfTest {
    pub(super) libcuda: Option<PathBuf>,
    pub(super) gpu: GpuUuid,
}

/// The answers, one line each. Each line of input asks again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// The GPU memory is filled, at this address.
    Ready { address: u64 },
    /// The number of words that differ from the pattern.
    Wrong { words: u64 },
    /// The process cannot use the GPU.
    Failed { why: String },
}

impl SelfTest {
    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"gpu-self-test")
    }

    /// Serves the tester. Never returns: libcuda's exit handlers wait for the lock of a process
    /// that is locked.
    pub fn run(self) -> ! {
        let code = match self.serve() {
            Ok(()) => 0,
            Err(error) => {
                let why = error_chain(&error);
                u8::from(say(&Said::Failed { why }).is_err()) + 1
            }
        };
        end_process(code)
    }

    fn serve(&self) -> Result<(), DeviceError> {
        let memory = DeviceMemory::allocate(self.libcuda.as_deref(), self.gpu)?;
        memory.fill()?;
        let address = memory.address;
        let mut said = say(&Said::Ready { address });
        for _line in io::stdin().lock().lines().map_while(Result::ok) {
            if said.is_err() {
                break;
            }
            let words = memory.wrong_words()?;
            said = say(&Said::Wrong { words });
        }
        Ok(())
    }
}
