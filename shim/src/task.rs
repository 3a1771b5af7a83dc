//! A task: a container's init process with everything that containerd asks about it.
//!
//! Two locks, neither of which is ever held while something is awaited that takes long:
//! the *turn*, which the short verbs (start, pause, kill ...) take one after the other, and the lock
//! of the record itself, held for the time of looking or changing it. A checkpoint or restore
//! holds neither: it is a state of its own, and whoever comes meanwhile sees that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use containerd_shim::api::Options;
use containerd_shim::io::Stdio;
use containerd_shim::protos::events::task::{TaskExit, TaskOOM, TaskPaused, TaskResumed};
use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::shim::oci::ProcessDetails;
use containerd_shim::protos::types::task::ProcessInfo;
use containerd_shim::util::convert_to_any;
use tokio::sync::watch;

use crate::bundle::Bundle;
use crate::cgroup::{Cgroup, CgroupError};
use crate::error::{Error, Result};
use crate::events::Publisher;
use crate::exec::{self, Exec, Snapshot};
use crate::oci_runtime::OciRuntime;
use crate::oom::OomWatch;
use crate::operation::{PendingSignal, Target};
use crate::reaper::{Exit, Pending, Reaper};
use crate::state::State;
use crate::stdio::{Io, Plumbing, Streams};
use crate::timestamp;

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
    /// The options that it was created with.
    pub(crate) options: Options,
    /// The init process's streams.
    pub(crate) stdio: Stdio,
    /// What it has in common with others.
    pub(crate) surroundings: Surroundings,
    /// Taken by the short verbs.
    pub(crate) turn: tokio::sync::Mutex<()>,
    record: Mutex<Record>,
    exit: watch::Sender<Option<Exit>>,
    /// Told when there is nothing more to be learned about the task.
    gone: tokio::sync::Notify,
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
    /// The image that Start restores it from.
    pub(crate) image: Option<std::path::PathBuf>,
}

/// What a task is made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: String,
    pub(crate) bundle: Bundle,
    pub(crate) runtime: OciRuntime,
    pub(crate) options: Options,
    pub(crate) stdio: Stdio,
    pub(crate) surroundings: Surroundings,
}

impl Task {
    /// A task that the low-level runtime has not made yet.
    pub(crate) fn new(parts: Parts, image: Option<std::path::PathBuf>) -> Arc<Self> {
        let state = match image {
            Some(_) => State::Prepared,
            None => State::Created,
        };
        Arc::new(Self {
            id: parts.id,
            bundle: parts.bundle,
            runtime: parts.runtime,
            options: parts.options,
            stdio: parts.stdio,
            surroundings: parts.surroundings,
            turn: tokio::sync::Mutex::new(()),
            record: Mutex::new(Record {
                state,
                pid: 0,
                io: None,
                cgroup: None,
                execs: BTreeMap::new(),
                ended: None,
                operated: false,
                image,
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
            uid: self.options.io_uid,
            gid: self.options.io_gid,
        };
        crate::stdio::prepare(wanted, &owner, &self.surroundings.reaper).await
    }

    /// The init process is there: remembers it and waits for its end.
    pub(crate) fn adopt(self: &Arc<Self>, pid: u32, io: Io, exit: Pending) {
        // A process that has ended already is in no cgroup any more, and nothing is lost by that.
        let cgroup = Cgroup::of_process(pid)
            .inspect_err(|error| log::warn!("no statistics of {}: {error}", self.id))
            .ok();
        let mut record = self.record();
        record.pid = pid;
        record.io = Some(io);
        record.cgroup = cgroup;
        drop(record);
        let task = Arc::clone(self);
        tokio::spawn(async move {
            let exit = exit.wait().await;
            task.init_ended(exit).await;
        });
    }

    async fn init_ended(&self, exit: Exit) {
        // In turn, so that the event of a start that is under way comes first.
        let turn = self.turn.lock().await;
        let others = {
            let mut record = self.record();
            record.ended = Some(exit);
            record.execs.values().any(|exec| exec.is_running())
        };
        // Processes outside a pid namespace of the container's own outlive the init process.
        if others && !self.bundle.has_own_pid_namespace().unwrap_or(true) {
            let killed = self.runtime.kill(&self.id, SIGKILL, Target::All).await;
            if let Err(error) = killed {
                log::warn!("processes of {} may have survived it: {error}", self.id);
            }
        }
        drop(turn);
        self.tell_end();
    }

    /// Tells that the task has ended, once there is nothing left to wait for: the exits of its
    /// other processes come first, and an operation under way has to be over.
    pub(crate) fn tell_end(&self) {
        let mut record = self.record();
        let Some(exit) = record.ended else { return };
        let waits = record.execs.values().any(|exec| exec.is_running())
            || record.state.operation().is_some()
            || record.state.exit().is_some();
        if waits {
            return;
        }
        record.state = State::Stopped(exit);
        let pid = record.pid;
        drop(record);
        self.publish_exit(self.id.clone(), pid, exit);
        self.exit.send_replace(Some(exit));
    }

    /// Tells the end of a process.
    pub(crate) fn publish_exit(&self, id: String, pid: u32, exit: Exit) {
        self.events().publish(TaskExit {
            container_id: self.id.clone(),
            id,
            pid,
            exit_status: exit.status,
            exited_at: timestamp::field(exit.at),
            ..TaskExit::default()
        });
    }

    /// Reports kills for want of memory, until the cgroup or the task is gone.
    pub(crate) fn watch_memory(self: &Arc<Self>) {
        let watch = self.record().cgroup.as_ref().map(OomWatch::start);
        let mut watch = match watch {
            Some(Ok(watch)) => watch,
            // Hosts without a memory controller are rare, and of use nevertheless.
            Some(Err(error)) => return log::warn!("no OOM events of {}: {error}", self.id),
            None => return,
        };
        let task = Arc::clone(self);
        tokio::spawn(async move {
            let gone = task.gone.notified();
            let kills = async {
                while let Ok(Some(())) = watch.next().await {
                    task.events().publish(TaskOOM {
                        container_id: task.id.clone(),
                        ..TaskOOM::default()
                    });
                }
            };
            // The kernel does not always tell that a cgroup is gone.
            tokio::select! {
                () = kills => {}
                () = gone => {}
            }
        });
    }

    /// Freezes it.
    pub(crate) async fn pause(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.record().state.may_pause()?;
        self.runtime.pause(&self.id).await?;
        self.settle(State::Paused);
        self.events().publish(TaskPaused {
            container_id: self.id.clone(),
            ..TaskPaused::default()
        });
        Ok(())
    }

    /// Thaws it.
    pub(crate) async fn resume(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.record().state.may_resume()?;
        self.runtime.resume(&self.id).await?;
        self.settle(State::Running);
        self.events().publish(TaskResumed {
            container_id: self.id.clone(),
            ..TaskResumed::default()
        });
        Ok(())
    }

    /// Notes what a verb has brought about, unless the task was ended or taken meanwhile.
    fn settle(&self, state: State) {
        let mut record = self.record();
        if matches!(
            record.state,
            State::Running | State::Paused | State::Created
        ) {
            record.state = state;
        }
    }

    /// Sends a signal to the init process. During an operation it is answered at once and delivered
    /// when the operation is over.
    pub(crate) async fn kill(&self, signal: u32, target: Target) -> Result<()> {
        if let Some(operation) = self.record().state.operation() {
            operation.signal(PendingSignal { signal, target });
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        {
            let mut record = self.record();
            if let Some(operation) = record.state.operation() {
                operation.signal(PendingSignal { signal, target });
                return Ok(());
            }
            if record.pid == 0 {
                return Err(Error::NotFound(format!("a process of {}", self.id)));
            }
            if record.ended.is_some() {
                return Err(Error::Finished(self.id.clone()));
            }
        }
        self.deliver(signal, target).await
    }

    /// Sends a signal through the low-level runtime, which knows how to reach a frozen process.
    pub(crate) async fn deliver(&self, signal: u32, target: Target) -> Result<()> {
        let sent = self.runtime.kill(&self.id, signal, target).await;
        match sent {
            // It ended meanwhile: the runtime's words for that differ, the fact does not.
            Err(_) if self.has_ended() => Err(Error::Finished(self.id.clone())),
            other => Ok(other?),
        }
    }

    fn has_ended(&self) -> bool {
        let record = self.record();
        record.ended.is_some() || !is_alive(record.pid)
    }

    /// Changes its limits.
    pub(crate) async fn update(&self, resources: &[u8]) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.record().state.may_update()?;
        let file = tempfile::NamedTempFile::new_in(self.bundle.path())
            .map_err(Error::io("make a file for the new limits"))?;
        std::fs::write(file.path(), resources).map_err(Error::io("write the new limits"))?;
        Ok(self.runtime.update(&self.id, file.path()).await?)
    }

    /// Its processes, with the ids of those that were added.
    pub(crate) async fn pids(&self) -> Result<Vec<ProcessInfo>> {
        let pids = self.runtime.pids(&self.id).await?;
        let execs: Vec<_> = self.record().execs.values().cloned().collect();
        let info = |pid| ProcessInfo {
            pid,
            info: MessageField::from_option(
                execs
                    .iter()
                    .find(|exec| exec.running_pid() == Some(pid))
                    .and_then(|exec| details(&exec.id)),
            ),
            ..ProcessInfo::default()
        };
        Ok(pids.into_iter().map(info).collect())
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

    /// Removes the container. Afterwards the task must not be used any more.
    pub(crate) async fn delete(&self) -> Result<Snapshot> {
        let _turn = self.turn.lock().await;
        let (io, operated) = {
            let mut record = self.record();
            record.state.may_delete()?;
            (record.io.take(), record.operated)
        };
        if let Some(io) = io {
            io.finish().await;
        }
        let deleted = if operated {
            self.runtime.delete_operated(&self.id).await
        } else {
            self.runtime.delete(&self.id).await
        };
        // A checkpoint that ends the container removes it by itself, and a task that was never
        // restored has none.
        if let Err(error) = deleted
            && self.runtime.state_of(&self.id).exists()
        {
            return Err(error.into());
        }
        self.bundle.unmount()?;
        self.gone.notify_one();
        Ok(self.end_of_unstarted())
    }

    /// A task that never ran is told to have been killed, as containerd's shim does.
    fn end_of_unstarted(&self) -> Snapshot {
        let mut snapshot = self.snapshot();
        if snapshot.exit.is_none() {
            let ended = self.record().ended;
            snapshot.exit = Some(ended.unwrap_or_else(Exit::killed));
        }
        snapshot
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

/// The signal that nothing survives.
pub(crate) const SIGKILL: u32 = 9;

fn details(exec_id: &str) -> Option<Any> {
    convert_to_any(Box::new(ProcessDetails {
        exec_id: exec_id.to_owned(),
        ..ProcessDetails::default()
    }))
    .ok()
}

/// Whether a process is there and not merely waiting to be reaped.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // "pid (comm) state ...": comm may hold anything.
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    })
}
