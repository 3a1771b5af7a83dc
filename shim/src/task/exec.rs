//! Exec: adds a process to a task; and Start of such a process.

use std::sync::Arc;

use containerd_shim::api::ExecProcessRequest;
use containerd_shim::io::Stdio;
use containerd_shim::protos::events::task::{TaskExecAdded, TaskExecStarted};

use crate::bundle::Bundle;
use crate::child::reaper::{Exit, PendingExit};
use crate::io_error::IoError;
use crate::stdio::Io;
use crate::task::Task;
use crate::task::error::{Result, TaskError};
use crate::task::exec_process::ExecProcess;

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
        return Err(TaskError::AlreadyExists(format!(
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
        TaskError::Invalid(format!(
            "the process's specification cannot be read: {error}"
        ))
    };
    let mut spec: serde_json::Map<_, _> = serde_json::from_slice(spec).map_err(unreadable)?;
    spec.insert("terminal".to_owned(), terminal.into());
    serde_json::to_vec(&spec).map_err(unreadable)
}

/// Starts a process that was added; returns its pid.
pub(crate) async fn start(task: &Arc<Task>, exec: &Arc<ExecProcess>) -> Result<u32> {
    let lock = task.verb_lock.lock().await;
    task.check_exec()?;
    exec.begin_start()?;
    let (pid, io, exit) = match spawn(task, exec).await {
        Ok(spawned) => spawned,
        Err(error) => {
            exec.start_failed();
            drop(lock);
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

async fn spawn(task: &Arc<Task>, exec: &ExecProcess) -> Result<(u32, Io, PendingExit)> {
    let (streams, pending_io) = task.prepare_io(&exec.stdio).await?;
    // Removed with its files when the pid has been read.
    let scratch = tempfile::Builder::new()
        .prefix("exec-")
        .tempdir_in(task.bundle.path())
        .map_err(IoError::cannot(
            "make a directory for the process's specification",
        ))?;
    let (process, pid_file) = (
        scratch.path().join("process.json"),
        scratch.path().join("pid"),
    );
    std::fs::write(&process, &exec.spec)
        .map_err(IoError::cannot("write the process's specification"))?;
    let watch = task.context.reaper.watch();
    task.runtime
        .exec(&task.id, &process, &pid_file, streams, pending_io.console())
        .await?;
    let pid = Bundle::read_pid(&pid_file)?;
    let io = pending_io.connect().await?;
    Ok((pid, io, watch.exit_of(pid)))
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
        assert!(matches!(
            process_spec(b"[]", false),
            Err(TaskError::Invalid(_))
        ));
    }
}
