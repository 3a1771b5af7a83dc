//! A task: a container's init process with everything that containerd asks about it.
//!
//! Two locks, neither of which is ever held while something is awaited that takes long:
//! the *turn*, which the short verbs (start, pause, kill ...) take one after the other, and the lock
//! of the record itself, held for the time of looking or changing it. A checkpoint or restore
//! holds neither: it is a state of its own, and whoever comes meanwhile sees that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use containerd_shim::io::Stdio;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use tokio::sync::watch;

use crate::bundle::Bundle;
use crate::cgroup::{Cgroup, CgroupError};
use crate::error::{Error, Result};
use crate::events::Publisher;
use crate::exec::{self, Exec, Snapshot};
use crate::oci_runtime::OciRuntime;
use crate::reaper::{Exit, Reaper};
use crate::state::State;
use crate::stdio::{Io, Plumbing, Streams};

/// What all tasks of a shim have in common.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// containerd's namespace.
    pub(crate) namespace: String,
    /// Waits for children.
    pub(crate) reaper: Arc<Reaper>,
    /// Tells containerd.
    pub(crate) events: Publisher,
}

/// A task.
#[derive(Debug)]
pub(crate) struct Task {
    /// The container's id.
    pub(crate) id: String,
    /// Its bundle.
    pub(crate) bundle: Bundle,
    /// Its runtimes.
    pub(crate) runtime: OciRuntime,
    /// The init process's streams.
    pub(crate) stdio: Stdio,
    /// What it has in common with others.
    pub(crate) surroundings: Surroundings,
    /// Taken by the short verbs.
    pub(crate) turn: tokio::sync::Mutex<()>,
    record: Mutex<Record>,
    /// Its end, once that is told.
    pub(crate) exit: watch::Sender<Option<Exit>>,
    /// Told when there is nothing more to be learned about the task.
    pub(crate) gone: tokio::sync::Notify,
}

/// What changes about a task.
#[derive(Debug)]
pub(crate) struct Record {
    /// What it is at.
    pub(crate) state: State,
    /// The init process; 0 as long as there is none.
    pub(crate) pid: u32,
    /// The init process's streams.
    pub(crate) io: Option<Io>,
    /// Its cgroup.
    pub(crate) cgroup: Option<Cgroup>,
    /// The processes beside the init process.
    pub(crate) execs: BTreeMap<String, Arc<Exec>>,
    /// The init process has ended; that is told when its other processes have ended and no
    /// operation is under way.
    pub(crate) ended: Option<Exit>,
    /// Whether the engine may have recorded something of it.
    pub(crate) operated: bool,
}

impl Task {
    /// A task that the low-level runtime has not made yet.
    pub(crate) fn new(
        id: String,
        bundle: Bundle,
        runtime: OciRuntime,
        stdio: Stdio,
        surroundings: Surroundings,
        state: State,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            bundle,
            runtime,
            stdio,
            surroundings,
            turn: tokio::sync::Mutex::new(()),
            record: Mutex::new(Record {
                state,
                pid: 0,
                io: None,
                cgroup: None,
                execs: BTreeMap::new(),
                ended: None,
                operated: false,
            }),
            exit: watch::Sender::new(None),
            gone: tokio::sync::Notify::new(),
        })
    }

    /// Its record, for a moment.
    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its events' publisher.
    pub(crate) fn events(&self) -> &Publisher {
        &self.surroundings.events
    }

    /// Prepares streams for one of its processes.
    pub(crate) async fn prepare_io(&self, wanted: &Stdio) -> Result<(Streams, Plumbing)> {
        let owner = crate::stdio::Owner {
            container: &self.id,
            namespace: &self.surroundings.namespace,
            uid: self.runtime.options().io_uid,
            gid: self.runtime.options().io_gid,
        };
        crate::stdio::prepare(wanted, &owner, &self.surroundings.reaper).await
    }

    /// What its cgroup has counted.
    pub(crate) fn metrics(&self) -> Result<Any> {
        let record = self.record();
        let Some(cgroup) = &record.cgroup else {
            return Err(Error::NotFound(format!("the cgroup of {}", self.id)));
        };
        cgroup.metrics().map_err(|error| match error {
            CgroupError::Gone { .. } => Error::NotFound(format!("the cgroup of {}", self.id)),
            other => Error::Cgroup(other),
        })
    }

    /// What State tells of the init process.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let record = self.record();
        Snapshot {
            pid: record.pid,
            status: record.state.status(),
            exit: record.state.exit(),
        }
    }

    /// Waits for its end.
    pub(crate) async fn wait(&self) -> Exit {
        exec::wait(&self.exit).await
    }

    /// The process that was added under `id`.
    pub(crate) fn exec(&self, id: &str) -> Result<Arc<Exec>> {
        let exec = self.record().execs.get(id).cloned();
        exec.ok_or_else(|| Error::NotFound(format!("process {id} of {}", self.id)))
    }

    /// Refuses an exec in a task whose init process has ended.
    pub(crate) fn check_exec(&self) -> Result<()> {
        let record = self.record();
        if record.ended.is_some() {
            return Err(Error::NotNow(format!(
                "the init process of {} is not running",
                self.id
            )));
        }
        Ok(record.state.may_exec()?)
    }
}
