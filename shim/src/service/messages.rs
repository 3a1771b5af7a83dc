//! containerd's messages about tasks: events of Create and Delete, responses of State and Delete.

use containerd_shim::api::{CreateTaskRequest, DeleteResponse, StateResponse};
use containerd_shim::io::Stdio;
use containerd_shim::protos::events::task::{TaskCreate, TaskDelete, TaskIO};
use containerd_shim::protos::protobuf::{EnumOrUnknown, MessageField};

use crate::child::reaper::Exit;
use crate::task::Task;
use crate::task::exec_process::Snapshot;

/// The event of a task that was created. `pid` is 0 if Start will restore it.
pub(crate) fn task_create(request: &CreateTaskRequest, pid: u32) -> TaskCreate {
    TaskCreate {
        container_id: request.id.clone(),
        bundle: request.bundle.clone(),
        rootfs: request.rootfs.clone(),
        io: MessageField::some(TaskIO {
            stdin: request.stdin.clone(),
            stdout: request.stdout.clone(),
            stderr: request.stderr.clone(),
            terminal: request.terminal,
            ..TaskIO::default()
        }),
        checkpoint: request.checkpoint.clone(),
        pid,
        ..TaskCreate::default()
    }
}

/// The event of a task that was deleted.
pub(crate) fn task_delete(id: &str, snapshot: Snapshot) -> TaskDelete {
    let exit = snapshot.exit.unwrap_or_else(Exit::killed);
    TaskDelete {
        container_id: id.to_owned(),
        pid: snapshot.pid,
        exit_status: exit.status,
        exited_at: MessageField::some(exit.at.into()),
        ..TaskDelete::default()
    }
}

/// The response to State.
pub(crate) fn state_response(
    task: &Task,
    exec_id: &str,
    snapshot: Snapshot,
    stdio: &Stdio,
) -> StateResponse {
    let mut response = StateResponse {
        id: task.id.clone(),
        exec_id: exec_id.to_owned(),
        bundle: task.bundle.path().to_string_lossy().into_owned(),
        pid: snapshot.pid,
        status: EnumOrUnknown::new(snapshot.status),
        stdin: stdio.stdin.clone(),
        stdout: stdio.stdout.clone(),
        stderr: stdio.stderr.clone(),
        terminal: stdio.terminal,
        ..StateResponse::default()
    };
    if let Some(exit) = snapshot.exit {
        response.exit_status = exit.status;
        response.exited_at = MessageField::some(exit.at.into());
    }
    response
}

/// The response to Delete.
pub(crate) fn delete_response(snapshot: Snapshot) -> DeleteResponse {
    let mut response = DeleteResponse {
        pid: snapshot.pid,
        ..DeleteResponse::default()
    };
    if let Some(exit) = snapshot.exit {
        response.exit_status = exit.status;
        response.exited_at = MessageField::some(exit.at.into());
    }
    response
}
