//! What every operation needs to know: the settings, the low-level runtime and its root.

use std::path::PathBuf;
use std::time::SystemTime;

use stasis_config::{LowLevel, Settings};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cancel::Cancel;
use crate::container::{Container, ContainerError};
use crate::cuda::{CudaDriver, OpenError};
use crate::error::Refusal;
use crate::fault::{Cause, Fault, Step};
use crate::job::LockLimits;
use crate::members::{Members, look};
use crate::process::ProcessRef;

/// The surroundings of an operation.
#[derive(Debug)]
pub struct Engine {
    /// The administrator's settings.
    pub settings: Settings,
    /// runc or crun.
    pub low_level: LowLevel,
    /// Where it keeps its containers.
    pub root: PathBuf,
    /// Whether a signal has asked for the end.
    pub cancel: Cancel,
    /// When the operation began.
    pub began: SystemTime,
}

/// What became of a call.
#[derive(Debug)]
pub enum Outcome {
    /// Not ours: the low-level runtime has to be exec'd with the caller's arguments.
    PassThrough,
    /// Done; this is the exit code.
    Done(u8),
}

/// The CUDA processes of a container and the driver that knows them.
#[derive(Debug)]
pub struct CudaMembers {
    /// The driver library.
    pub driver: CudaDriver,
    /// The processes with their states; not empty.
    pub members: Members,
}

impl Engine {
    /// The container, or `None` if the low-level runtime has a better answer: that it does not
    /// exist or does not run.
    ///
    /// # Errors
    /// Its state exists and cannot be read.
    pub fn container(&self, id: &str) -> Result<Option<Container>, ContainerError> {
        match Container::load(self.low_level.flavor, &self.root, id) {
            Ok(container) => Ok(Some(container)),
            Err(ContainerError::NotFound { .. } | ContainerError::Stopped { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The container's CUDA processes; `None` if it has none. It must not be frozen if any of its
    /// processes may use CUDA: the driver would never answer.
    ///
    /// # Errors
    /// Also when the driver cannot be asked although a process has a GPU open: "no driver" must
    /// never be taken for "no CUDA".
    pub fn cuda_members(&self, container: &Container) -> Result<Option<CudaMembers>, Refusal> {
        let processes = container.processes().map_err(ContainerError::Processes)?;
        let driver = match CudaDriver::open(self.settings.driver.libcuda.as_deref()) {
            Ok(driver) => driver,
            Err(error) => return without_driver(error, &processes).map(|()| None),
        };
        let members = look(&driver, processes)?;
        Ok((!members.is_empty()).then_some(CudaMembers { driver, members }))
    }

    /// How long locking may take.
    #[must_use]
    pub fn lock_limits(&self) -> LockLimits {
        LockLimits {
            deadline: self.settings.deadlines.lock(),
            one_try: self.settings.deadlines.lock_try(),
        }
    }

    /// When the operation began, RFC 3339.
    #[must_use]
    pub fn began_text(&self) -> String {
        let began = OffsetDateTime::from(self.began).replace_nanosecond(0);
        let text = began.map(|began| began.format(&Rfc3339));
        text.ok().and_then(Result::ok).unwrap_or_default()
    }
}

fn without_driver(error: OpenError, processes: &[ProcessRef]) -> Result<(), Refusal> {
    for process in processes {
        if process
            .has_nvidia_device()
            .map_err(ContainerError::Processes)?
        {
            return Err(match error {
                OpenError::NotFound => Fault::of(Step::Look, process, Cause::NoDriver).into(),
                other => Refusal::Driver(other),
            });
        }
    }
    Ok(())
}
