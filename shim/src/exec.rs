//! A process that was added to a task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use containerd_shim::api::Status;
use containerd_shim::io::Stdio;
use rustix::process::{Pid, Signal, kill_process};
use rustix_libc_wrappers::process::SignalExt;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::reaper::Exit;
use crate::stdio::Io;

/// A process beside the init process.
#[derive(Debug)]
pub(crate) struct Exec {
    /// Its id within the task.
    pub(crate) id: String,
    /// The OCI process specification, JSON.
    pub(crate) spec: Vec<u8>,
    /// Its streams.
    pub(crate) stdio: Stdio,
    stage: Mutex<Stage>,
    exit: watch::Sender<Option<Exit>>,
}

/// What it is at.
#[derive(Debug)]
enum Stage {
    Added,
    Starting,
    Running {
        pid: u32,
        io: Io,
    },
    Stopped {
        pid: u32,
        io: Option<Io>,
        exit: Exit,
    },
}

/// What State tells of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    /// 0 before it was started.
    pub(crate) pid: u32,
    /// As containerd shows it.
    pub(crate) status: Status,
    /// How it ended.
    pub(crate) exit: Option<Exit>,
}

impl Exec {
    /// Adds one; it is started later.
    pub(crate) fn new(id: String, spec: Vec<u8>, stdio: Stdio) -> Arc<Self> {
        Arc::new(Self {
            id,
            spec,
            stdio,
            stage: Mutex::new(Stage::Added),
            exit: watch::Sender::new(None),
        })
    }

    /// Its start begins.
    pub(crate) fn begin(&self) -> Result<()> {
        let mut stage = self.stage();
        let state = match *stage {
            Stage::Added => {
                *stage = Stage::Starting;
                return Ok(());
            }
            Stage::Starting => "being started",
            Stage::Running { .. } => "running",
            Stage::Stopped { .. } => "stopped",
        };
        Err(Error::NotNow(format!(
            "cannot start process {}, which is {state}",
            self.id
        )))
    }

    /// It runs.
    pub(crate) fn started(&self, pid: u32, io: Io) {
        *self.stage() = Stage::Running { pid, io };
    }

    /// It was not started and never will be.
    pub(crate) fn failed(&self) {
        let exit = Exit::unseen();
        *self.stage() = Stage::Stopped {
            pid: 0,
            io: None,
            exit,
        };
        self.exit.send_replace(Some(exit));
    }

    /// It has ended.
    pub(crate) fn ended(&self, exit: Exit) {
        let mut stage = self.stage();
        let before = std::mem::replace(&mut *stage, Stage::Starting);
        *stage = match before {
            Stage::Running { pid, io } => Stage::Stopped {
                pid,
                io: Some(io),
                exit,
            },
            other => other,
        };
        drop(stage);
        self.exit.send_replace(Some(exit));
    }

    /// Whether its end has to be waited for before the task's is told.
    pub(crate) fn is_running(&self) -> bool {
        matches!(*self.stage(), Stage::Starting | Stage::Running { .. })
    }

    /// Its pid while it runs.
    pub(crate) fn running_pid(&self) -> Option<u32> {
        match *self.stage() {
            Stage::Running { pid, .. } => Some(pid),
            _ => None,
        }
    }

    /// What State tells of it.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (pid, status, exit) = match &*self.stage() {
            Stage::Added | Stage::Starting => (0, Status::CREATED, None),
            Stage::Running { pid, .. } => (*pid, Status::RUNNING, None),
            Stage::Stopped { pid, exit, .. } => (*pid, Status::STOPPED, Some(*exit)),
        };
        Snapshot { pid, status, exit }
    }

    /// Waits for its end.
    pub(crate) async fn wait(&self) -> Exit {
        wait(&self.exit).await
    }

    /// Sends a signal.
    pub(crate) fn kill(&self, signal: u32) -> Result<()> {
        // The lock keeps the process from being reaped and its pid from being another's: its end
        // is noted under it.
        let stage = self.stage();
        match *stage {
            Stage::Added | Stage::Starting => Err(Error::NotNow(format!(
                "process {} has not been started",
                self.id
            ))),
            Stage::Stopped { .. } => Err(Error::Finished(self.id.clone())),
            Stage::Running { pid, .. } => match send(pid, signal) {
                Err(rustix::io::Errno::SRCH) => Err(Error::Finished(self.id.clone())),
                other => other.map_err(Error::io(format!("signal process {}", self.id))),
            },
        }
    }

    /// Does something with its streams; before it runs it has none.
    pub(crate) fn with_io<T>(&self, act: impl FnOnce(&Io) -> Result<T>) -> Result<T> {
        match &*self.stage() {
            Stage::Running { io, .. } | Stage::Stopped { io: Some(io), .. } => act(io),
            _ => Err(Error::NotNow(format!("process {} does not run", self.id))),
        }
    }

    /// Takes what there is to clean up; refused while it runs.
    pub(crate) fn take_for_removal(&self) -> Result<(Snapshot, Option<Io>)> {
        if self.is_running() {
            return Err(Error::NotNow(format!(
                "cannot delete process {}, which is running",
                self.id
            )));
        }
        let snapshot = self.snapshot();
        let io = match &mut *self.stage() {
            Stage::Stopped { io, .. } => io.take(),
            _ => None,
        };
        Ok((snapshot, io))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until an exit is told.
pub(crate) async fn wait(told: &watch::Sender<Option<Exit>>) -> Exit {
    let mut told = told.subscribe();
    // The sender belongs to the process that is waited for, so it does not go away.
    let exit = told.wait_for(Option::is_some).await;
    exit.ok()
        .and_then(|exit| *exit)
        .unwrap_or_else(Exit::unseen)
}

fn send(pid: u32, signal: u32) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let signal = i32::try_from(signal).ok().and_then(Signal::from_raw);
    match (pid, signal) {
        (Some(pid), Some(signal)) => kill_process(pid, signal),
        _ => Err(rustix::io::Errno::INVAL),
    }
}
