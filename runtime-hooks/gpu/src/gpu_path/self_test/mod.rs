//! Tries with a process of our own whether threads of ours may copy GPU contents on this node,
//! before any job depends on it.
//!
//! Our code answers calls that libcuda need not make in the same way for ever, so each build of it
//! is tried, once: a process of ours ([`process`]) with some MiB of GPU memory is checkpointed and
//! restored by the driver alone, by our copying, and by one after the other, and reports each time
//! whether every word is right. A failure with the driver alone says nothing of our copying, and is
//! not kept. At the end its checkpoint thread is asked for the memory of the process
//! ([`super::survey`]).
//!
//! If the tester is killed, the process sees the end of its input, and ends; our copying ends with
//! the tester, and the kernel frees the rest.

mod deadline;
mod device;
mod pattern;
mod pieces;
mod process;
mod room;
mod stored_verdict;
mod subject;
mod trial;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_host::file_lock::{Sharing, lock_within};
use stasis_injection::slots::{BuildId, Refusal};
use stasis_linux::directory::Directory;
use stasis_linux::error_chain;

use crate::cuda::watchdog::{CallLimits, WatchedDriver};
use crate::cuda::{CudaDriver, OpenError};
use deadline::Deadline;
pub use process::SelfTest;
use room::NoGpu;
use stored_verdict::StoredVerdict;
use subject::{NotStarted, Subject};
use trial::{Failure, Round, Trial};

/// The directory of the results, below the state directory: it is lost at a reboot.
const DIRECTORY: &str = "gpu-self-test";
/// The most time for the whole test. It takes some seconds, most of them the driver's.
const LIMIT: Duration = Duration::from_secs(30);

/// Result of the self-test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Result of our copying.
    pub copying: Verdict,
    /// Result of a survey by the driver's checkpoint thread.
    pub surveys: Surveys,
}

/// Whether the driver's checkpoint thread lists the memory of a locked process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surveys {
    /// It does, and the process goes on as before.
    Passed,
    /// It does not, or was not tried after another failure.
    NotPassed {
        /// The observed failure.
        why: String,
    },
}

/// Result of our copying.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our copying does what the driver's does.
    Passed,
    /// The same, if contents are loaded before the driver is asked for them.
    PassedOnceLoaded {
        /// The observed failure where they were loaded while it copied.
        why: String,
    },
    /// Our copying fails, or cannot be used with this build of libcuda.
    NotPassed {
        /// The observed failure.
        why: String,
    },
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum CannotRun {
    #[error(transparent)]
    Driver(#[from] OpenError),
    /// No GPU has room for the test now, or can be used.
    #[error(transparent)]
    Gpu(#[from] NoGpu),
    #[error("which build of libcuda this node has is not known")]
    Build(#[source] Refusal),
    /// The driver was exchanged meanwhile.
    #[error("its process has found another libcuda than this one")]
    Changed,
    #[error("its process cannot use the GPU")]
    Start(#[from] NotStarted),
    #[error("the driver alone cannot checkpoint and restore its process")]
    DriverAlone(#[source] Failure),
    #[error("the directory of the results cannot be used")]
    Results(#[source] io::Error),
}

/// Returns the result of this version of stasis with this build of libcuda and this kernel; `None`
/// if it is not known ([`run`]).
#[must_use]
pub fn passed(settings: &Settings, build_id: &BuildId) -> Option<Verdict> {
    let directory = settings.paths.state_dir.join(DIRECTORY);
    Some(stored_verdict::read(&directory, build_id)?.copying)
}

/// Whether surveys are known to work with this build.
pub(super) fn is_surveyed(settings: &Settings, build_id: &BuildId) -> bool {
    let directory = settings.paths.state_dir.join(DIRECTORY);
    stored_verdict::read(&directory, build_id).is_some_and(|tried| tried.surveys == Surveys::Passed)
}

/// Returns the result for this node's libcuda: the known one, or a new one, which takes some
/// seconds, and half a GiB of a GPU's memory. Waits for another process that tries it.
///
/// # Errors
/// [`CannotRun`]: there is no result then.
pub fn run(settings: &Settings) -> Result<(BuildId, Tried), CannotRun> {
    let driver = CudaDriver::open(settings.driver.libcuda.as_deref())?;
    let build_id = stored_verdict::own_build_id().map_err(CannotRun::Build)?;
    let directory = settings.paths.state_dir.join(DIRECTORY);
    let _turn = turn(&directory).map_err(CannotRun::Results)?;
    if let Some(tried) = stored_verdict::read(&directory, &build_id) {
        return Ok((build_id, tried));
    }
    let (answer, work) = (LIMIT, LIMIT);
    let driver = WatchedDriver::new(Arc::new(driver), CallLimits { answer, work });
    let tried = try_it(settings, &driver, &build_id)?;
    let stored = StoredVerdict::now(tried.clone());
    stored
        .write(&directory, &build_id)
        .map_err(CannotRun::Results)?;
    Ok((build_id, tried))
}

/// Waits for the turn: the directory is its own lock.
fn turn(directory: &Path) -> io::Result<File> {
    let lock = Directory::make(directory, 0o700)?.into_file();
    lock_within(LIMIT * 2, &lock, Sharing::Exclusive)?;
    Ok(lock)
}

fn try_it(
    settings: &Settings,
    driver: &WatchedDriver,
    build_id: &BuildId,
) -> Result<Tried, CannotRun> {
    let room = room::reserve(settings)?;
    let subject = Subject::start(settings.driver.libcuda.clone(), room.gpu)?;
    let deadline = Deadline::begin(subject.process(), LIMIT);
    let mut trial = Trial::begin(driver, subject)?;
    if trial.build_id().map_err(CannotRun::Build)? != *build_id {
        return Err(CannotRun::Changed);
    }
    trial
        .carry_out(Round::DriverAlone)
        .map_err(|failure| CannotRun::DriverAlone(deadline.explain(failure)))?;
    let copying = try_copying(&mut trial, &deadline);
    let surveys = match &copying {
        Verdict::Passed => match trial.survey() {
            Ok(()) => Surveys::Passed,
            Err(failure) => Surveys::NotPassed {
                why: error_chain(&deadline.explain(failure)),
            },
        },
        // The test's process may be of no use any more.
        _ => Surveys::NotPassed {
            why: "copying has failed before".to_owned(),
        },
    };
    Ok(Tried { copying, surveys })
}

fn try_copying(trial: &mut Trial<'_>, deadline: &Deadline) -> Verdict {
    for round in [Round::Ours, Round::OursAndBackByDriver, Round::DriverAlone] {
        if let Err(failure) = trial.carry_out(round) {
            let why = explained(round, deadline, failure);
            return Verdict::NotPassed { why };
        }
    }
    // The last round: the process may be of no use then.
    let round = Round::OursWhileLoading;
    match trial.carry_out(round) {
        Ok(()) => Verdict::Passed,
        Err(failure) => Verdict::PassedOnceLoaded {
            why: explained(round, deadline, failure),
        },
    }
}

fn explained(round: Round, deadline: &Deadline, failure: Failure) -> String {
    let why = error_chain(&deadline.explain(failure));
    format!("{round}: {why}")
}
