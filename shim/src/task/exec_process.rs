//! A process that Exec added to a task, and its state.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use containerd_shim::api::Status;
use containerd_shim::io::Stdio;
use rustix::process::{Pid, Signal, kill_process};
use rustix_libc_wrappers::process::SignalExt;
use tokio::sync::watch;

use crate::child::reaper::Exit;
use crate::error::{Error, Result};
use crate::stdio::Io;

/// A process that Exec added to a task.
#[derive(Debug)]
pub(crate) struct ExecProcess {
    /// Its id within the task.
    pub(crate) id: String,
    /// The OCI process specification, JSON.
    pub(crate) spec: Vec<u8>,
    /// Its streams.
    pub(crate) stdio: Stdio,
    state: Mutex<ExecState>,
    exit: watch::Sender<Option<Exit>>,
}

/// The state of such a process.
#[derive(Debug)]
enum ExecState {
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

/// The state of a process, for State.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    /// Its pid; 0 before it is started.
    pub(crate) pid: u32,
    /// The status as containerd shows it.
    pub(crate) status: Status,
    /// How it ended, if it has.
    pub(crate) exit: Option<Exit>,
}

impl ExecProcess {
    /// A process that is started later.
    pub(crate) fn new(id: String, spec: Vec<u8>, stdio: Stdio) -> Arc<Self> {
        Arc::new(Self {
            id,
            spec,
            stdio,
            state: Mutex::new(ExecState::Added),
            exit: watch::Sender::new(None),
        })
    }

    /// Enters the state Starting; refused unless the process was just added.
    pub(crate) fn begin_start(&self) -> Result<()> {
        let mut state = self.state();
        let name = match *state {
            ExecState::Added => {
                *state = ExecState::Starting;
                self.exit.send_replace(None);
                return Ok(());
            }
            ExecState::Starting => "being started",
            ExecState::Running { .. } => "running",
            ExecState::Stopped { .. } => "stopped",
        };
        Err(Error::FailedPrecondition(format!(
            "cannot start process {}, which is {name}",
            self.id
        )))
    }

    /// Enters the state Running.
    pub(crate) fn started(&self, pid: u32, io: Io) {
        *self.state() = ExecState::Running { pid, io };
    }

    /// Enters the state Added again because the start failed, as in containerd's own shim: who
    /// waits is answered, and it may be started once more.
    pub(crate) fn start_failed(&self) {
        *self.state() = ExecState::Added;
        self.exit.send_replace(Some(Exit::unknown()));
    }

    /// Answers who waits for it although it was never started: its task is deleted.
    pub(crate) fn task_has_gone(&self) {
        if matches!(*self.state(), ExecState::Added) {
            self.exit.send_replace(Some(Exit::unknown()));
        }
    }

    /// Enters the state Stopped because the process has ended.
    pub(crate) fn exited(&self, exit: Exit) {
        let mut state = self.state();
        let before = std::mem::replace(&mut *state, ExecState::Starting);
        *state = match before {
            ExecState::Running { pid, io } => {
                io.process_exited();
                ExecState::Stopped {
                    pid,
                    io: Some(io),
                    exit,
                }
            }
            other => other,
        };
        drop(state);
        self.exit.send_replace(Some(exit));
    }

    /// Whether the event of its exit is still to come, which must precede that of the task's exit.
    pub(crate) fn is_running(&self) -> bool {
        matches!(
            *self.state(),
            ExecState::Starting | ExecState::Running { .. }
        )
    }

    /// Its pid while it runs.
    pub(crate) fn running_pid(&self) -> Option<u32> {
        match *self.state() {
            ExecState::Running { pid, .. } => Some(pid),
            _ => None,
        }
    }

    /// Its state, for State.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (pid, status, exit) = match &*self.state() {
            ExecState::Added | ExecState::Starting => (0, Status::CREATED, None),
            ExecState::Running { pid, .. } => (*pid, Status::RUNNING, None),
            ExecState::Stopped { pid, exit, .. } => (*pid, Status::STOPPED, Some(*exit)),
        };
        Snapshot { pid, status, exit }
    }

    /// Waits until it has ended.
    pub(crate) async fn wait(&self) -> Exit {
        wait_for_exit(&self.exit).await
    }

    /// Sends a signal.
    pub(crate) fn kill(&self, signal: u32) -> Result<()> {
        // Held while the signal is sent: `exited` takes this lock to leave the state Running.
        let state = self.state();
        match *state {
            ExecState::Added | ExecState::Starting => Err(Error::FailedPrecondition(format!(
                "process {} has not been started",
                self.id
            ))),
            ExecState::Stopped { .. } => Err(Error::Finished(self.id.clone())),
            ExecState::Running { pid, .. } => match send(pid, signal) {
                Err(rustix::io::Errno::SRCH) => Err(Error::Finished(self.id.clone())),
                other => other.map_err(Error::cannot(format!("signal process {}", self.id))),
            },
        }
    }

    /// Closes its standard input, which it has only once it runs.
    pub(crate) fn close_input(&self) -> Result<()> {
        match &*self.state() {
            ExecState::Running { io, .. } | ExecState::Stopped { io: Some(io), .. } => {
                io.close_input();
                Ok(())
            }
            _ => Err(Error::FailedPrecondition(format!(
                "process {} does not run",
                self.id
            ))),
        }
    }

    /// Sets the size of its terminal. Before the start there is none yet, and no error, as in
    /// containerd's own shim: nerdctl asks then.
    pub(crate) fn resize(&self, width: u32, height: u32) -> Result<()> {
        match &*self.state() {
            ExecState::Added | ExecState::Starting => Ok(()),
            ExecState::Running { io, .. } => Ok(io.resize(width, height)?),
            ExecState::Stopped { .. } => Err(Error::FailedPrecondition(format!(
                "cannot resize the terminal of process {}, which is stopped",
                self.id
            ))),
        }
    }

    /// Takes its streams for Delete; refused while it runs.
    pub(crate) fn take_for_delete(&self) -> Result<(Snapshot, Option<Io>)> {
        if self.is_running() {
            return Err(Error::FailedPrecondition(format!(
                "cannot delete process {}, which is running",
                self.id
            )));
        }
        let snapshot = self.snapshot();
        let io = match &mut *self.state() {
            ExecState::Stopped { io, .. } => io.take(),
            _ => None,
        };
        Ok((snapshot, io))
    }

    fn state(&self) -> MutexGuard<'_, ExecState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until an exit is sent.
pub(crate) async fn wait_for_exit(exit: &watch::Sender<Option<Exit>>) -> Exit {
    let mut receiver = exit.subscribe();
    // The sender belongs to the process that is waited for, so it is not dropped.
    let exit = receiver.wait_for(Option::is_some).await;
    exit.ok()
        .and_then(|exit| *exit)
        .unwrap_or_else(Exit::unknown)
}

fn send(pid: u32, signal: u32) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let signal = i32::try_from(signal).ok().and_then(Signal::from_raw);
    match (pid, signal) {
        (Some(pid), Some(signal)) => kill_process(pid, signal),
        _ => Err(rustix::io::Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added() -> Arc<ExecProcess> {
        ExecProcess::new("e1".to_owned(), Vec::new(), Stdio::default())
    }

    #[tokio::test]
    async fn who_waits_is_answered_when_the_task_goes_before_the_start() {
        let exec = added();
        exec.task_has_gone();
        exec.wait().await;
    }

    #[tokio::test]
    async fn it_may_be_started_again_when_a_start_has_failed() {
        let exec = added();
        exec.begin_start().unwrap();
        exec.task_has_gone();
        assert!(exec.exit.borrow().is_none());
        exec.start_failed();
        exec.wait().await;
        assert_eq!(exec.snapshot().status, Status::CREATED);
        exec.begin_start().unwrap();
        assert!(exec.exit.borrow().is_none());
        assert!(exec.begin_start().is_err());
    }
}
