//! The record of the changes to undo if an operation ends without doing so itself: its keeper reads
//! it then, or the next operation if both were killed.
//!
//! The record is a file in the operation's directory, from before the first change until the end.
//! No sync to disk is needed: a machine that restarts has neither the container nor /run.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stasis_config::{Deadlines, Driver, GpuContents, LowLevel, Paths, Settings};
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_host::cancel::Cancel;
use stasis_host::json_record;
use stasis_linux::cgroup::FreezerState;

use crate::container::root_mounts::RootMounts;
use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::operation::OperationError;
use crate::operation::directory::directories;
use crate::operation::keeper::is_trying;
use crate::operation::lock;
use crate::operation::outcome::SharedOutcome;

/// The record's file in an operation's directory.
pub(super) const FILE_NAME: &str = "undo.json";
/// It may hold a container's whole `config.json`, escaped.
const MAX_BYTES: u64 = 64 << 20;

/// The record's path in an operation's directory. It exists while changes are to be undone.
pub(crate) fn path_in(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// The changes to undo, and their container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The container.
    pub id: String,
    /// The low-level runtime's directory.
    pub root: PathBuf,
    /// The first process of the container that is dumped: another may have the id soon.
    #[serde(default)]
    init: Option<ProcessId>,
    low_level: LowLevel,
    driver: Driver,
    deadlines: Deadlines,
    paths: Paths,
    gpu_contents: GpuContents,
    /// The operation.
    pub begun: Begun,
}

/// The operation that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begun {
    /// A checkpoint: the container goes on as it was found.
    Checkpoint {
        /// Whether the container was frozen.
        #[serde(with = "Freezer")]
        found: FreezerState,
        /// The directory of the image; `None` before that is begun, and once it is complete.
        image: Option<PathBuf>,
        /// The outcome that it shares with others.
        #[serde(rename = "group")]
        shared: Option<SharedOutcome>,
    },
    /// `cuda-checkpoint`: the container resumes.
    Suspend,
    /// A resume: it is completed.
    Resume,
    /// A restore: its parts of the container are ended.
    Restore(Restore),
    /// Only processes that did not answer the driver are left: they resume once all answer.
    Waiting,
}

/// The files of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// CRIU's work directory.
    pub(crate) work: PathBuf,
    /// The container's bundle.
    pub(crate) bundle: PathBuf,
    /// The file that the low-level runtime writes once the container is up, if it stays as the
    /// container's parent then.
    pub(crate) pid_file: Option<PathBuf>,
    /// The specification that was changed, and its original text.
    pub(crate) specification: Option<(PathBuf, String)>,
    /// The cgroup that had no processes when the low-level runtime was about to be started: all
    /// processes in it come from the restore.
    pub(crate) cgroup: Option<PathBuf>,
    /// The mounts below the root file system at that time.
    pub(crate) mounts: Option<RootMounts>,
    pub(crate) stage: Stage,
    /// The outcome that it shares with others.
    #[serde(rename = "group")]
    pub shared: Option<SharedOutcome>,
}

/// The progress of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// Nothing has been started: a container of this id is not of this restore.
    Prepared,
    /// The low-level runtime may have made the container.
    Started,
}

impl Restore {
    /// The record for the start of the low-level runtime, with the cgroup and mounts before it.
    pub(crate) fn started(&self, cgroup: Option<PathBuf>, mounts: Option<RootMounts>) -> Self {
        Self {
            cgroup,
            mounts,
            stage: Stage::Started,
            ..self.clone()
        }
    }
}

/// The names of [`FreezerState`] in the record.
#[derive(Serialize, Deserialize)]
#[serde(remote = "FreezerState", rename_all = "snake_case")]
enum Freezer {
    Thawed,
    Frozen,
}

impl Undo {
    pub(crate) fn new(context: &Context, id: &str, begun: Begun) -> Self {
        Self {
            id: id.to_owned(),
            root: context.root.clone(),
            init: None,
            low_level: context.low_level.clone(),
            driver: context.settings.driver.clone(),
            deadlines: context.settings.deadlines.clone(),
            paths: context.settings.paths.clone(),
            gpu_contents: context.settings.gpu_contents.clone(),
            begun,
        }
    }

    /// The same for the operation on one container, and not on another one of its id.
    pub(crate) fn of(self, container: &Container) -> Self {
        let init = Some(ProcessId::of(container.init()));
        Self { init, ..self }
    }

    /// Returns the container; `None` if it has ended, also if another one has its id now.
    ///
    /// # Errors
    /// As of [`Context::container`].
    pub(crate) fn container(&self, context: &Context) -> Result<Option<Container>, ContainerError> {
        let found = context.container(&self.id)?;
        let is_it = |found: &Container| {
            let init = ProcessId::of(found.init());
            self.init.is_none_or(|recorded| recorded == init)
        };
        Ok(found.filter(is_it))
    }

    /// Returns the context for undoing the changes, with the operation's settings. It does not wait
    /// for room while it holds the container's lock: the keeper tries again.
    pub fn context(&self, cancel: Cancel) -> Context {
        let settings = Settings {
            driver: self.driver.clone(),
            deadlines: Deadlines {
                room_s: 0,
                ..self.deadlines.clone()
            },
            paths: self.paths.clone(),
            gpu_contents: self.gpu_contents.clone(),
            ..Settings::default()
        };
        Context {
            settings,
            low_level: self.low_level.clone(),
            root: self.root.clone(),
            cancel,
            began: SystemTime::now(),
        }
    }

    /// Returns whether the started low-level runtime has done its work, though it has not ended.
    pub(super) fn is_up(&self) -> bool {
        match &self.begun {
            Begun::Restore(restore) => restore.pid_file.as_ref().is_some_and(|file| file.exists()),
            _ => false,
        }
    }

    /// Returns the name in `operations.log` of the operation that was begun.
    pub fn verb(&self) -> &'static str {
        match self.begun {
            Begun::Checkpoint { .. } => "checkpoint",
            Begun::Suspend => "cuda-checkpoint",
            Begun::Resume => "resume",
            Begun::Restore(_) => "restore",
            Begun::Waiting => "operation",
        }
    }

    /// Reads the record in an operation's directory. `None` if there is nothing to undo.
    ///
    /// # Errors
    /// [`OperationError::Io`], also for a file that holds no valid record.
    pub fn read(directory: &Path) -> Result<Option<Self>, OperationError> {
        let path = directory.join(FILE_NAME);
        json_record::read(&path, MAX_BYTES).map_err(OperationError::of_file(&path))
    }

    /// Returns whether changes are to undo and no process does it: the operation was killed, and so
    /// was its keeper, which has the lock for its first try, and shows that it tries until its end.
    pub fn is_cut_off(directory: &Path) -> bool {
        let is_left = Self::read(directory).ok().flatten().is_some();
        is_left && !lock::is_held(directory) && matches!(is_trying(directory), Ok(false))
    }

    /// Returns all records below a state directory, by container.
    ///
    /// # Errors
    /// An I/O error of reading the directories. A record that cannot be read is left out.
    pub fn all(state_dir: &Path) -> io::Result<Vec<Self>> {
        let records = directories(state_dir)?.into_iter();
        Ok(records
            .filter_map(|directory| Self::read(&directory).ok().flatten())
            .collect())
    }

    pub(super) fn write(&self, directory: &Path) -> Result<(), OperationError> {
        let path = directory.join(FILE_NAME);
        json_record::write(&path, self).map_err(OperationError::of_file(&path))
    }
}

#[cfg(test)]
mod tests;
