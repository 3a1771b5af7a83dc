//! Exec: another process in a task, added first and started later.

use std::sync::Arc;

use containerd_shim::api::ExecProcessRequest;
use containerd_shim::io::Stdio;
use containerd_shim::protos::events::task::{TaskExecAdded, TaskExecStarted};

use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::exec::Exec;
use crate::reaper::{Exit, Pending};
use crate::stdio::Io;
use crate::task::Task;

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
    record.state.may_add()?;
    if record.execs.contains_key(&request.exec_id) {
        return Err(Error::AlreadyExists(format!(
            "process {} of {}",
            request.exec_id, task.id
        )));
    }
    let exec = Exec::new(request.exec_id.clone(), spec, stdio);
    record.execs.insert(request.exec_id.clone(), exec);
    drop(record);
    task.events().publish(TaskExecAdded {
        container_id: task.id.clone(),
        exec_id: request.exec_id.clone(),
        ..TaskExecAdded::default()
    });
    Ok(())
}

/// The specification with the request's word on the terminal, which counts.
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

/// Starts a process that was added; gives its pid.
pub(crate) async fn start(task: &Arc<Task>, exec: &Arc<Exec>) -> Result<u32> {
    let turn = task.turn.lock().await;
    task.check_exec()?;
    exec.begin()?;
    let (pid, io, exit) = match launch(task, exec).await {
        Ok(launched) => launched,
        Err(error) => {
            exec.failed();
            drop(turn);
            task.tell_end();
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
        ended(&task, &exec, pid, exit);
    });
    Ok(pid)
}

async fn launch(task: &Arc<Task>, exec: &Exec) -> Result<(u32, Io, Pending)> {
    let (streams, plumbing) = task.prepare_io(&exec.stdio).await?;
    // Removed with what is in it when the pid has been read.
    let scratch = tempfile::Builder::new()
        .prefix("exec-")
        .tempdir_in(task.bundle.path())
        .map_err(Error::io(
            "make a directory for the process's specification",
        ))?;
    let (process, pid_file) = (
        scratch.path().join("process.json"),
        scratch.path().join("pid"),
    );
    std::fs::write(&process, &exec.spec).map_err(Error::io("write the process's specification"))?;
    let watch = task.surroundings.reaper.watch();
    task.runtime
        .exec(&task.id, &process, &pid_file, streams, plumbing.console())
        .await?;
    let pid = Bundle::read_pid(&pid_file)?;
    let io = plumbing.connect().await?;
    Ok((pid, io, watch.exit_of(pid)))
}

fn ended(task: &Task, exec: &Exec, pid: u32, exit: Exit) {
    exec.ended(exit);
    task.publish_exit(exec.id.clone(), pid, exit);
    task.tell_end();
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
    fn a_specification_that_is_none_is_refused() {
        assert!(matches!(process_spec(b"[]", false), Err(Error::Invalid(_))));
    }
}
