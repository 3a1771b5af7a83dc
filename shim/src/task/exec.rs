//! Exec: adds a process to a task; and Start of such a process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use containerd_shim::api::ExecProcessRequest;
use containerd_shim::io::Stdio;
use containerd_shim::protos::events::task::{TaskExecAdded, TaskExecStarted};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::RwLockWriteGuard;
use tokio::time::timeout;

use crate::bundle::Bundle;
use crate::child::reaper::{Exit, PendingExit};
use crate::error::{Error, Result};
use crate::runtime::process::RuntimeProcess;
use crate::stdio::Io;
use crate::task::Task;
use crate::task::exec_process::ExecProcess;
use crate::task::operation::Caller;

/// How long Pause and Checkpoint wait for processes that are being started.
const STARTS: Duration = Duration::from_secs(10);

/// Adds a process.
pub(crate) fn add(task: &Task, request: &ExecProcessRequest) -> Result<()> {
    let spec = process_spec(&request.spec.value, request.terminal)?;
    let stdio = Stdio::new(
        &request.stdin,
        &request.stdout,
        &request.stderr,
        request.terminal,
    );
    let mut record = task.record();
    record.state.may_add_exec()?;
    if record.execs.contains_key(&request.exec_id) {
        return Err(Error::AlreadyExists(format!(
            "process {} of {}",
            request.exec_id, task.id
        )));
    }
    let exec = ExecProcess::new(request.exec_id.clone(), spec, stdio);
    record.execs.insert(request.exec_id.clone(), exec);
    drop(record);
    task.events().publish(TaskExecAdded {
        container_id: task.id.clone(),
        exec_id: request.exec_id.clone(),
        ..TaskExecAdded::default()
    });
    Ok(())
}

/// The specification, with `terminal` as the request has it.
fn process_spec(spec: &[u8], terminal: bool) -> Result<Vec<u8>> {
    let unreadable = |error: serde_json::Error| {
        Error::Invalid(format!(
            "the process's specification cannot be read: {error}"
        ))
    };
    let mut spec: serde_json::Map<_, _> = serde_json::from_slice(spec).map_err(unreadable)?;
    spec.insert("terminal".to_owned(), terminal.into());
    serde_json::to_vec(&spec).map_err(unreadable)
}

/// Starts a process that was added; returns its pid. Ends the start if the caller goes.
pub(crate) async fn start(
    task: &Arc<Task>,
    exec: &Arc<ExecProcess>,
    caller: Caller,
) -> Result<u32> {
    let shared = task.exec_starts.read().await;
    task.check_exec()?;
    exec.begin_start()?;
    let spawned = spawn(task, exec, caller).await;
    drop(shared);
    let (pid, io, exit) = match spawned {
        Ok(spawned) => spawned,
        Err(error) => {
            exec.start_failed();
            task.publish_exit_if_done();
            return Err(error);
        }
    };
    exec.started(pid, io);
    task.events().publish(TaskExecStarted {
        container_id: task.id.clone(),
        exec_id: exec.id.clone(),
        pid,
        ..TaskExecStarted::default()
    });
    let (task, exec) = (Arc::clone(task), Arc::clone(exec));
    tokio::spawn(async move {
        let exit = exit.wait().await;
        exited(&task, &exec, pid, exit);
    });
    Ok(pid)
}

impl Task {
    /// Waits until no process is being started, and lets none start until the guard is dropped.
    pub(crate) async fn without_exec_starts(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let wait = timeout(STARTS, self.exec_starts.write());
        wait.await.map_err(|_| {
            Error::FailedPrecondition(format!(
                "processes of {} that exec added have been starting for {} s; nothing was changed",
                self.id,
                STARTS.as_secs()
            ))
        })
    }
}

async fn spawn(
    task: &Arc<Task>,
    exec: &ExecProcess,
    caller: Caller,
) -> Result<(u32, Io, PendingExit)> {
    let (streams, pending_io) = task.prepare_io(&exec.id, &exec.stdio).await?;
    // Removed with its files when the pid has been read.
    let scratch = tempfile::Builder::new()
        .prefix("exec-")
        .tempdir_in(task.bundle.path())
        .map_err(Error::cannot(
            "make a directory for the process's specification",
        ))?;
    let (process, pid_file) = (
        scratch.path().join("process.json"),
        scratch.path().join("pid"),
    );
    std::fs::write(&process, &exec.spec)
        .map_err(Error::cannot("write the process's specification"))?;
    let watch = task.context.reaper.watch();
    let console = pending_io.console();
    let call = task
        .runtime
        .start_exec(&task.id, &process, &pid_file, streams, console)?;
    let runtime = call.process().map_err(Error::cannot("watch the start"))?;
    let launch = async {
        call.wait().await?;
        let pid = Bundle::read_pid(&pid_file)?;
        Ok((pid, pending_io.connect().await?))
    };
    tokio::select! {
        biased;
        launched = launch => launched.map(|(pid, io)| {
            let what = format!("process {} of {}", exec.id, task.id);
            (pid, io, watch.exit_of(pid, what))
        }),
        reason = given_up(task, caller) => {
            kill_start(&runtime, &pid_file);
            let message = format!("the start of process {} was ended: {reason}", exec.id);
            Err(Error::FailedPrecondition(message))
        }
    }
}

/// Waits until a start has become useless. The low-level runtime ends by itself when the init
/// process has, unless it is stopped or hangs.
async fn given_up(task: &Task, mut caller: Caller) -> &'static str {
    tokio::select! {
        _ = caller.changed() => "its caller has gone",
        reason = task.useless() => reason,
    }
}

/// Ends a low-level runtime and, if it has made one, its process, which no task would know.
fn kill_start(runtime: &RuntimeProcess, pid_file: &Path) {
    // Fails only if it has ended.
    let _ = runtime.signal(Signal::KILL);
    let made = Bundle::read_pid(pid_file).ok();
    let made = made.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = made {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn exited(task: &Task, exec: &ExecProcess, pid: u32, exit: Exit) {
    exec.exited(exit);
    task.publish_exit(exec.id.clone(), pid, exit);
    task.publish_exit_if_done();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_decides_on_the_terminal() {
        let spec = process_spec(br#"{"terminal":false,"args":["sh"],"cwd":"/"}"#, true).unwrap();
        let spec: serde_json::Value = serde_json::from_slice(&spec).unwrap();
        assert_eq!(spec["terminal"], true);
        assert_eq!(spec["args"][0], "sh");
    }

    #[test]
    fn a_specification_that_is_no_object_is_refused() {
        assert!(matches!(process_spec(b"[]", false), Err(Error::Invalid(_))));
    }
}
