//! containerd's task service: finds the task that a request is about, and answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use containerd_shim::Task as TaskService;
use containerd_shim::TtrpcContext;
use containerd_shim::api::{
    CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
    CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, ExecProcessRequest, KillRequest,
    PauseRequest, PidsRequest, PidsResponse, ResizePtyRequest, ResumeRequest, ShutdownRequest,
    StartRequest, StartResponse, StateRequest, StateResponse, StatsRequest, StatsResponse,
    UpdateTaskRequest, WaitRequest, WaitResponse,
};
use containerd_shim::io::Stdio;
use containerd_shim::protos::events::task::{TaskCreate, TaskDelete, TaskIO};
use containerd_shim::protos::protobuf::{EnumOrUnknown, MessageField};
use containerd_shim::protos::ttrpc::Result as TtrpcResult;
use tokio::sync::Notify;

use crate::add;
use crate::checkpoint::checkpoint;
use crate::create::create;
use crate::error::{Error, Result};
use crate::exec::Snapshot;
use crate::operation::Target;
use crate::start;
use crate::task::{Surroundings, Task};
use crate::timestamp;

/// The service.
#[derive(Debug)]
pub(crate) struct Service {
    surroundings: Surroundings,
    tasks: Mutex<HashMap<String, Entry>>,
    /// Told when the shim may end.
    over: Arc<Notify>,
}

/// What an id stands for.
#[derive(Debug, Clone)]
enum Entry {
    /// It is being created.
    Reserved,
    /// It is there.
    There(Arc<Task>),
}

impl Service {
    /// A service without tasks; `over` is told when the shim may end.
    pub(crate) fn new(surroundings: Surroundings, over: Arc<Notify>) -> Self {
        Self {
            surroundings,
            tasks: Mutex::new(HashMap::new()),
            over,
        }
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task(&self, id: &str) -> Result<Arc<Task>> {
        match self.tasks().get(id) {
            Some(Entry::There(task)) => Ok(Arc::clone(task)),
            _ => Err(Error::NotFound(format!("task {id}"))),
        }
    }

    async fn create_task(&self, request: &CreateTaskRequest) -> Result<u32> {
        let taken = self.tasks().insert(request.id.clone(), Entry::Reserved);
        if let Some(taken) = taken {
            self.tasks().insert(request.id.clone(), taken);
            return Err(Error::AlreadyExists(format!("task {}", request.id)));
        }
        let task = match create(request, &self.surroundings).await {
            Ok(task) => task,
            Err(error) => {
                self.tasks().remove(&request.id);
                return Err(error);
            }
        };
        let pid = task.snapshot().pid;
        self.tasks()
            .insert(request.id.clone(), Entry::There(Arc::clone(&task)));
        task.events().publish(TaskCreate {
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
        });
        Ok(pid)
    }

    async fn delete_task(&self, task: &Arc<Task>) -> Result<Snapshot> {
        let snapshot = task.delete().await?;
        self.tasks().remove(&task.id);
        let exit = snapshot.exit.unwrap_or_else(crate::reaper::Exit::killed);
        task.events().publish(TaskDelete {
            container_id: task.id.clone(),
            pid: snapshot.pid,
            exit_status: exit.status,
            exited_at: timestamp::field(exit.at),
            ..TaskDelete::default()
        });
        Ok(snapshot)
    }
}

fn state_of(task: &Task, exec_id: &str, snapshot: Snapshot, stdio: &Stdio) -> StateResponse {
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
        response.exited_at = timestamp::field(exit.at);
    }
    response
}

fn deleted(snapshot: Snapshot) -> DeleteResponse {
    let mut response = DeleteResponse {
        pid: snapshot.pid,
        ..DeleteResponse::default()
    };
    if let Some(exit) = snapshot.exit {
        response.exit_status = exit.status;
        response.exited_at = timestamp::field(exit.at);
    }
    response
}

#[async_trait]
impl TaskService for Service {
    async fn state(&self, _: &TtrpcContext, request: StateRequest) -> TtrpcResult<StateResponse> {
        let task = self.task(&request.id)?;
        if request.exec_id.is_empty() {
            return Ok(state_of(&task, "", task.snapshot(), &task.stdio));
        }
        let exec = task.exec(&request.exec_id)?;
        Ok(state_of(&task, &exec.id, exec.snapshot(), &exec.stdio))
    }

    async fn create(
        &self,
        _: &TtrpcContext,
        request: CreateTaskRequest,
    ) -> TtrpcResult<CreateTaskResponse> {
        Ok(CreateTaskResponse {
            pid: self.create_task(&request).await?,
            ..CreateTaskResponse::default()
        })
    }

    async fn start(&self, _: &TtrpcContext, request: StartRequest) -> TtrpcResult<StartResponse> {
        let task = self.task(&request.id)?;
        let pid = if request.exec_id.is_empty() {
            start::start(&task).await?
        } else {
            let exec = task.exec(&request.exec_id)?;
            add::start(&task, &exec).await?
        };
        Ok(StartResponse {
            pid,
            ..StartResponse::default()
        })
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: DeleteRequest,
    ) -> TtrpcResult<DeleteResponse> {
        let task = self.task(&request.id)?;
        if request.exec_id.is_empty() {
            return Ok(deleted(self.delete_task(&task).await?));
        }
        let (snapshot, io) = task.exec(&request.exec_id)?.take_for_removal()?;
        if let Some(io) = io {
            io.finish().await;
        }
        task.record().execs.remove(&request.exec_id);
        Ok(deleted(snapshot))
    }

    async fn pids(&self, _: &TtrpcContext, request: PidsRequest) -> TtrpcResult<PidsResponse> {
        Ok(PidsResponse {
            processes: self.task(&request.id)?.pids().await?,
            ..PidsResponse::default()
        })
    }

    async fn pause(&self, _: &TtrpcContext, request: PauseRequest) -> TtrpcResult<Empty> {
        self.task(&request.id)?.pause().await?;
        Ok(Empty::default())
    }

    async fn resume(&self, _: &TtrpcContext, request: ResumeRequest) -> TtrpcResult<Empty> {
        self.task(&request.id)?.resume().await?;
        Ok(Empty::default())
    }

    async fn checkpoint(
        &self,
        _: &TtrpcContext,
        request: CheckpointTaskRequest,
    ) -> TtrpcResult<Empty> {
        checkpoint(&self.task(&request.id)?, &request).await?;
        Ok(Empty::default())
    }

    async fn kill(&self, _: &TtrpcContext, request: KillRequest) -> TtrpcResult<Empty> {
        let task = self.task(&request.id)?;
        if !request.exec_id.is_empty() {
            task.exec(&request.exec_id)?.kill(request.signal)?;
            return Ok(Empty::default());
        }
        let target = if request.all {
            Target::All
        } else {
            Target::Init
        };
        task.kill(request.signal, target).await?;
        Ok(Empty::default())
    }

    async fn exec(&self, _: &TtrpcContext, request: ExecProcessRequest) -> TtrpcResult<Empty> {
        add::add(&*self.task(&request.id)?, &request)?;
        Ok(Empty::default())
    }

    async fn resize_pty(&self, _: &TtrpcContext, request: ResizePtyRequest) -> TtrpcResult<Empty> {
        let task = self.task(&request.id)?;
        let (width, height) = (request.width, request.height);
        if request.exec_id.is_empty() {
            if let Some(io) = &task.record().io {
                io.resize(width, height)?;
            }
        } else {
            let exec = task.exec(&request.exec_id)?;
            exec.with_io(|io| io.resize(width, height))?;
        }
        Ok(Empty::default())
    }

    async fn close_io(&self, _: &TtrpcContext, request: CloseIORequest) -> TtrpcResult<Empty> {
        let task = self.task(&request.id)?;
        if !request.stdin {
            return Ok(Empty::default());
        }
        if request.exec_id.is_empty() {
            if let Some(io) = &task.record().io {
                io.close_input();
            }
        } else {
            task.exec(&request.exec_id)?.with_io(|io| {
                io.close_input();
                Ok(())
            })?;
        }
        Ok(Empty::default())
    }

    async fn update(&self, _: &TtrpcContext, request: UpdateTaskRequest) -> TtrpcResult<Empty> {
        let task = self.task(&request.id)?;
        task.update(&request.resources.value).await?;
        Ok(Empty::default())
    }

    async fn wait(&self, _: &TtrpcContext, request: WaitRequest) -> TtrpcResult<WaitResponse> {
        let task = self.task(&request.id)?;
        let exit = if request.exec_id.is_empty() {
            task.wait().await
        } else {
            task.exec(&request.exec_id)?.wait().await
        };
        Ok(WaitResponse {
            exit_status: exit.status,
            exited_at: timestamp::field(exit.at),
            ..WaitResponse::default()
        })
    }

    async fn stats(&self, _: &TtrpcContext, request: StatsRequest) -> TtrpcResult<StatsResponse> {
        let metrics = self.task(&request.id)?.metrics()?;
        Ok(StatsResponse {
            stats: MessageField::some(metrics),
            ..StatsResponse::default()
        })
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        request: ConnectRequest,
    ) -> TtrpcResult<ConnectResponse> {
        // A shim whose first task is still being created is there, too.
        let task_pid = self.task(&request.id).map_or(0, |task| task.snapshot().pid);
        Ok(ConnectResponse {
            shim_pid: std::process::id(),
            task_pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ConnectResponse::default()
        })
    }

    async fn shutdown(&self, _: &TtrpcContext, _: ShutdownRequest) -> TtrpcResult<Empty> {
        // A shim that serves other containers of a pod goes on.
        if self.tasks().is_empty() {
            self.over.notify_one();
        }
        Ok(Empty::default())
    }
}
