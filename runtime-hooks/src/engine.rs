//! What every operation needs to know: the settings, the low-level runtime and its root.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use stasis_config::{LowLevel, Settings};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::cancel::Cancel;
use crate::container::{Container, ContainerError};
use crate::cuda::{CudaDriver, OpenError};
use crate::error::Refusal;
use crate::fault::{Cause, Fault, Step};
use crate::lock::LockLimits;
use crate::members::{Members, look};
use crate::operation::glance;
use crate::process::ProcessRef;
use crate::stop::Stop;
use crate::watchdog::{CallLimits, MARGIN, WatchedDriver};

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
    pub driver: WatchedDriver,
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
        let driver = match self.open_driver(container.id()) {
            Ok(driver) => driver,
            Err(error) => return without_driver(error, &processes).map(|()| None),
        };
        refuse_frozen_above(container, &processes)?;
        let members = look(&driver, processes)?;
        Ok((!members.is_empty()).then_some(CudaMembers { driver, members }))
    }

    /// The driver, for calls about processes of the container `id`. After an operation that was cut off it
    /// may still be at work for one, and tells not even a state before that is done (measured on driver
    /// 580.159), so it is waited for as long as for the work itself.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_driver(&self, id: &str) -> Result<WatchedDriver, OpenError> {
        let driver = CudaDriver::open(self.settings.driver.libcuda.as_deref())?;
        let deadlines = &self.settings.deadlines;
        let work = deadlines.driver();
        let recorded = glance(&self.settings.paths.state_dir, &self.root, id);
        let answer = match recorded {
            Ok(None) => deadlines.lock() + MARGIN,
            _ => work.max(deadlines.lock() + MARGIN),
        };
        Ok(WatchedDriver::new(
            Arc::new(driver),
            CallLimits { answer, work },
        ))
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
        rfc3339(self.began)
    }
}

/// A time to the second, RFC 3339.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time).replace_nanosecond(0);
    let text = time.map(|time| time.format(&Rfc3339));
    text.ok().and_then(Result::ok).unwrap_or_default()
}

/// A frozen process answers the driver nothing, and a cgroup above the container's is not ours to thaw.
///
/// # Errors
/// A process that may use CUDA and is held so.
pub(crate) fn refuse_frozen_above(
    container: &Container,
    processes: &[ProcessRef],
) -> Result<(), Fault> {
    // What the freezer does not tell is left to the watchdog.
    if !matches!(container.cgroup().is_held(), Ok(true)) {
        return Ok(());
    }
    let held = processes
        .iter()
        .find(|process| matches!(process.may_use_cuda(), Ok(true)));
    held.map_or(Ok(()), |process| {
        let cause = Cause::Stopped(Stop::FrozenAbove);
        Err(Fault::of(Step::Look, process, cause))
    })
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
