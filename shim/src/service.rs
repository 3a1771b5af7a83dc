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
use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::ttrpc::Result as TtrpcResult;
use tokio::sync::Notify;

use crate::add;
use crate::checkpoint::checkpoint;
use crate::create::create;
use crate::error::{Error, Result};
use crate::exec::Snapshot;
use crate::messages;
use crate::operation::Target;
use crate::start;
use crate::task::{Surroundings, Task};
use crate::timestamp;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    surroundings: Surroundings,
    tasks: Arc<Mutex<HashMap<String, Entry>>>,
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
            tasks: Arc::new(Mutex::new(HashMap::new())),
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
        task.events().publish(messages::created(request, pid));
        Ok(pid)
    }

    async fn delete_task(&self, task: &Arc<Task>) -> Result<Snapshot> {
        let snapshot = task.delete().await?;
        self.tasks().remove(&task.id);
        task.events().publish(messages::removed(&task.id, snapshot));
        Ok(snapshot)
    }
}

/// Carries out what changes a task. When the caller's deadline passes, ttrpc drops what answers the
/// request; a verb that is dropped half-way would leave its task in the middle of it for ever.
async fn to_the_end<T: Send + 'static>(
    verb: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let carried_out = tokio::spawn(verb).await;
    carried_out.unwrap_or_else(|error| Err(Error::NotNow(format!("the shim failed: {error}"))))
}

#[async_trait]
impl TaskService for Service {
    async fn state(&self, _: &TtrpcContext, request: StateRequest) -> TtrpcResult<StateResponse> {
        let task = self.task(&request.id)?;
        if request.exec_id.is_empty() {
            return Ok(messages::state_of(&task, "", task.snapshot(), &task.stdio));
        }
        let exec = task.exec(&request.exec_id)?;
        Ok(messages::state_of(
            &task,
            &exec.id,
            exec.snapshot(),
            &exec.stdio,
        ))
    }

    async fn create(
        &self,
        _: &TtrpcContext,
        request: CreateTaskRequest,
    ) -> TtrpcResult<CreateTaskResponse> {
        let service = self.clone();
        let pid = to_the_end(async move { service.create_task(&request).await }).await?;
        Ok(CreateTaskResponse {
            pid,
            ..CreateTaskResponse::default()
        })
    }

    async fn start(&self, _: &TtrpcContext, request: StartRequest) -> TtrpcResult<StartResponse> {
        let task = self.task(&request.id)?;
        let pid = if request.exec_id.is_empty() {
            to_the_end(async move { start::start(&task).await }).await?
        } else {
            let exec = task.exec(&request.exec_id)?;
            to_the_end(async move { add::start(&task, &exec).await }).await?
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
            let service = self.clone();
            let ended = to_the_end(async move { service.delete_task(&task).await }).await?;
            return Ok(messages::deleted(ended));
        }
        let (snapshot, io) = task.exec(&request.exec_id)?.take_for_removal()?;
        if let Some(io) = io {
            io.finish().await;
        }
        task.record().execs.remove(&request.exec_id);
        Ok(messages::deleted(snapshot))
    }

    async fn pids(&self, _: &TtrpcContext, request: PidsRequest) -> TtrpcResult<PidsResponse> {
        Ok(PidsResponse {
            processes: self.task(&request.id)?.pids().await?,
            ..PidsResponse::default()
        })
    }

    async fn pause(&self, _: &TtrpcContext, request: PauseRequest) -> TtrpcResult<Empty> {
        let task = self.task(&request.id)?;
        to_the_end(async move { task.pause().await }).await?;
        Ok(Empty::default())
    }

    async fn resume(&self, _: &TtrpcContext, request: ResumeRequest) -> TtrpcResult<Empty> {
        let task = self.task(&request.id)?;
        to_the_end(async move { task.resume().await }).await?;
        Ok(Empty::default())
    }

    async fn checkpoint(
        &self,
        _: &TtrpcContext,
        request: CheckpointTaskRequest,
    ) -> TtrpcResult<Empty> {
        let task = self.task(&request.id)?;
        to_the_end(async move { checkpoint(&task, &request).await }).await?;
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
        to_the_end(async move { task.update(&request.resources.value).await }).await?;
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
