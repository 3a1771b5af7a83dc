//! A task: a container's init process with everything that containerd asks about it. Each verb of
//! containerd's task service is a file, by its ttrpc name.
//!
//! No lock of a task is held while a checkpoint or restore runs. `verb_lock` serialises the short
//! verbs (Start, Pause, Kill ...). The lock of [`Record`] is held while the record is read or
//! changed. A checkpoint or restore is a state of the task instead, which all other verbs see.
//! Processes that Exec added are started beside all of that, and beside each other; `exec_starts`
//! lets Pause and Checkpoint wait for them, because a process that is half-way in the container
//! would be frozen, or dumped, half-way.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use containerd_shim::api::Status;
use containerd_shim::io::Stdio;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use tokio::sync::watch;

use self::exec_process::{ExecProcess, Snapshot};
use self::state::LifecycleState;
use crate::bundle::{Bundle, Through};
use crate::cgroup::Cgroup;
use crate::child::reaper::{Exit, Reaper};
use crate::containerd::events::Publisher;
use crate::error::{Error, Result};
use crate::run_blocking::run_blocking;
use crate::runtime::OciRuntime;
use crate::stdio::{Io, PendingIo, Streams};

pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod exec;
pub(crate) mod exec_process;
pub(crate) mod exit;
pub(crate) mod force;
pub(crate) mod kill;
pub(crate) mod oom;
pub(crate) mod operation;
pub(crate) mod pause;
pub(crate) mod pids;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod update;

/// The parts that all tasks of a shim share.
#[derive(Debug, Clone)]
pub(crate) struct ShimContext {
    /// containerd's namespace.
    pub(crate) namespace: String,
    /// Reaps children.
    pub(crate) reaper: Arc<Reaper>,
    /// Publishes events to containerd.
    pub(crate) events: Publisher,
}

/// A task.
#[derive(Debug)]
pub(crate) struct Task {
    /// The container's id.
    pub(crate) id: String,
    /// Its bundle.
    pub(crate) bundle: Bundle,
    /// The programs that act on it.
    pub(crate) runtime: OciRuntime,
    /// The init process's streams.
    pub(crate) stdio: Stdio,
    /// The parts that it shares with the shim's other tasks.
    pub(crate) context: ShimContext,
    /// Serialises the short verbs.
    pub(crate) verb_lock: tokio::sync::Mutex<()>,
    record: Mutex<Record>,
    /// Shared by the starts of processes that Exec added; alone for Pause and Checkpoint.
    pub(crate) exec_starts: tokio::sync::RwLock<()>,
    /// The number of times that it was resumed.
    pub(crate) resumes: watch::Sender<u64>,
    /// Held while a restore is under way.
    pub(crate) restore: Arc<tokio::sync::Mutex<()>>,
    /// Whether Delete is under way.
    pub(crate) is_being_deleted: AtomicBool,
    /// The init process's exit. Its event is published when the task's other processes have ended
    /// and no operation is under way.
    pub(crate) init_exit: watch::Sender<Option<Exit>>,
    /// The init process's exit, once its event is published: Wait waits for it.
    pub(crate) exit: watch::Sender<Option<Exit>>,
}

/// The part of a task that changes.
#[derive(Debug)]
pub(crate) struct Record {
    /// Its state.
    pub(crate) state: LifecycleState,
    /// The init process's pid; 0 as long as there is none.
    pub(crate) pid: u32,
    /// The init process's streams.
    pub(crate) io: Option<Io>,
    /// The init process's cgroup.
    pub(crate) cgroup: Option<Cgroup>,
    /// The processes that Exec added, by their ids.
    pub(crate) execs: BTreeMap<String, Arc<ExecProcess>>,
    /// The deadline of the caller that has paused it.
    pub(crate) paused_until: Option<Instant>,
    /// When its last checkpoint ended, if it has been paused since before that, and is not to be
    /// resumed later since a caller has gone or has failed to resume it.
    pub(crate) checkpointed_paused: Option<Instant>,
    /// Whether Delete has removed the container.
    pub(crate) is_deleted: bool,
    /// The program through which it is created, started, killed and deleted.
    pub(crate) through: Through,
}

impl Task {
    /// A task whose container does not exist yet.
    pub(crate) fn new(
        id: String,
        bundle: Bundle,
        runtime: OciRuntime,
        stdio: Stdio,
        context: ShimContext,
        state: LifecycleState,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            bundle,
            runtime,
            stdio,
            context,
            verb_lock: tokio::sync::Mutex::new(()),
            record: Mutex::new(Record {
                state,
                pid: 0,
                io: None,
                cgroup: None,
                execs: BTreeMap::new(),
                paused_until: None,
                checkpointed_paused: None,
                is_deleted: false,
                through: Through::LowLevel,
            }),
            exec_starts: tokio::sync::RwLock::new(()),
            resumes: watch::Sender::new(0),
            restore: Arc::default(),
            is_being_deleted: AtomicBool::new(false),
            init_exit: watch::Sender::new(None),
            exit: watch::Sender::new(None),
        })
    }

    /// Locks the record. Do not hold it across an await.
    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The publisher of its events.
    pub(crate) fn events(&self) -> &Publisher {
        &self.context.events
    }

    /// Prepares the streams of one of its processes.
    pub(crate) async fn prepare_io(
        &self,
        id: &str,
        wanted: &Stdio,
    ) -> Result<(Streams, PendingIo)> {
        let owner = crate::stdio::pipes::Owner {
            id,
            namespace: &self.context.namespace,
            uid: self.runtime.options.io_uid,
            gid: self.runtime.options.io_gid,
        };
        crate::stdio::prepare(wanted, &owner, &self.context.reaper).await
    }

    /// The statistics of its cgroup.
    pub(crate) async fn metrics(&self) -> Result<Any> {
        let cgroup = self.record().cgroup.clone();
        let metrics = match cgroup {
            Some(cgroup) => run_blocking(move || cgroup.metrics()).await?,
            None => None,
        };
        metrics.ok_or_else(|| Error::NotFound(format!("the cgroup of {}", self.id)))
    }

    /// Logs what is under way.
    pub(crate) fn log(&self) {
        let record = self.record();
        log::warn!(
            "{}: pid {}, {:?}, {}, {}, init {:?}",
            self.id,
            record.pid,
            record.state,
            if self.verb_lock.try_lock().is_ok() {
                "no verb"
            } else {
                "a verb"
            },
            if self.exec_starts.try_write().is_ok() {
                "no start"
            } else {
                "starts of processes"
            },
            *self.init_exit.borrow(),
        );
        for exec in record.execs.values() {
            log::warn!("{}: process {}: {:?}", self.id, exec.id, exec.snapshot());
        }
    }

    /// The init process's state, for State.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let record = self.record();
        Snapshot {
            pid: record.pid,
            status: record.state.status(),
            exit: record.state.exit(),
        }
    }

    /// The state of a process that Exec added, for State: paused with the task.
    pub(crate) fn snapshot_of(&self, exec: &ExecProcess) -> Snapshot {
        let mut snapshot = exec.snapshot();
        if snapshot.status == Status::RUNNING && self.snapshot().status == Status::PAUSED {
            snapshot.status = Status::PAUSED;
        }
        snapshot
    }

    /// Waits until the task's exit is published.
    pub(crate) async fn wait(&self) -> Exit {
        exec_process::wait_for_exit(&self.exit).await
    }

    /// The process that Exec added under `id`.
    pub(crate) fn exec(&self, id: &str) -> Result<Arc<ExecProcess>> {
        let exec = self.record().execs.get(id).cloned();
        exec.ok_or_else(|| Error::NotFound(format!("process {id} of {}", self.id)))
    }

    /// Whether an added process may be started now.
    pub(crate) fn check_exec(&self) -> Result<()> {
        if self.init_exit.borrow().is_some() {
            return Err(Error::FailedPrecondition(format!(
                "the init process of {} is not running",
                self.id
            )));
        }
        self.record().state.may_exec()
    }
}
