//! containerd's task service over ttrpc: finds the task of a request, calls the verb, and answers.

use std::sync::Arc;

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
use tokio::sync::{Notify, watch};

use self::calls::Calls;
use self::deadline::deadline;
use self::tasks::Tasks;
use self::waiter::Waiter;
use crate::error::{Error, Result};
use crate::runtime::Target;
use crate::task::ShimContext;
use crate::task::checkpoint::checkpoint;
use crate::task::exec;
use crate::task::start;

mod calls;
mod deadline;
mod messages;
mod tasks;
mod waiter;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) tasks: Tasks,
    /// Its calls, which are still to be counted.
    pub(crate) calls: Calls,
}

impl Service {
    /// A service without tasks. It notifies `shutdown` when the shim may end.
    pub(crate) fn new(context: ShimContext, shutdown: Arc<Notify>) -> Self {
        Self {
            tasks: Tasks::new(context, shutdown),
            calls: Calls::none(),
        }
    }
}

/// Runs a verb that changes a task to its end. When the caller's deadline passes, ttrpc drops the
/// handler of the request; a verb that is dropped half-way would leave its task in the middle of
/// it.
async fn run_uncancelled<T: Send + 'static>(
    verb: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let result = tokio::spawn(verb).await;
    result.unwrap_or_else(|error| {
        Err(Error::FailedPrecondition(format!(
            "the shim panicked: {error}"
        )))
    })
}

#[async_trait]
impl TaskService for Service {
    async fn state(&self, _: &TtrpcContext, request: StateRequest) -> TtrpcResult<StateResponse> {
        let task = self.tasks.get(&request.id)?;
        if request.exec_id.is_empty() {
            return Ok(messages::state_response(
                &task,
                "",
                task.snapshot(),
                &task.stdio,
            ));
        }
        let exec = task.exec(&request.exec_id)?;
        Ok(messages::state_response(
            &task,
            &exec.id,
            task.snapshot_of(&exec),
            &exec.stdio,
        ))
    }

    async fn create(
        &self,
        _: &TtrpcContext,
        request: CreateTaskRequest,
    ) -> TtrpcResult<CreateTaskResponse> {
        let tasks = self.tasks.clone();
        // ttrpc drops this handler, and with it this end, at the caller's deadline.
        let (_caller, caller) = watch::channel(());
        let pid = run_uncancelled(async move { tasks.create(&request, caller).await }).await?;
        Ok(CreateTaskResponse {
            pid,
            ..CreateTaskResponse::default()
        })
    }

    async fn start(&self, _: &TtrpcContext, request: StartRequest) -> TtrpcResult<StartResponse> {
        let task = self.tasks.get(&request.id)?;
        let (_caller, caller) = watch::channel(());
        let pid = if request.exec_id.is_empty() {
            run_uncancelled(async move { start::start(&task, caller).await }).await?
        } else {
            let exec = task.exec(&request.exec_id)?;
            run_uncancelled(async move { exec::start(&task, &exec, caller).await }).await?
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
        self.tasks.give_up(&request.id);
        let task = self.tasks.get(&request.id)?;
        if request.exec_id.is_empty() {
            let tasks = self.tasks.clone();
            let ended = run_uncancelled(async move { tasks.delete(&task).await }).await?;
            return Ok(messages::delete_response(ended));
        }
        let (snapshot, io) = task.exec(&request.exec_id)?.take_for_delete()?;
        if let Some(io) = io {
            io.finish().await;
        }
        task.record().execs.remove(&request.exec_id);
        Ok(messages::delete_response(snapshot))
    }

    async fn pids(&self, _: &TtrpcContext, request: PidsRequest) -> TtrpcResult<PidsResponse> {
        Ok(PidsResponse {
            processes: self.tasks.get(&request.id)?.pids().await?,
            ..PidsResponse::default()
        })
    }

    async fn pause(&self, context: &TtrpcContext, request: PauseRequest) -> TtrpcResult<Empty> {
        let task = self.tasks.get(&request.id)?;
        let deadline = deadline(context);
        run_uncancelled(async move { task.pause(deadline).await }).await?;
        Ok(Empty::default())
    }

    async fn resume(&self, _: &TtrpcContext, request: ResumeRequest) -> TtrpcResult<Empty> {
        let task = self.tasks.get(&request.id)?;
        run_uncancelled(async move { task.resume().await }).await?;
        Ok(Empty::default())
    }

    async fn checkpoint(
        &self,
        context: &TtrpcContext,
        request: CheckpointTaskRequest,
    ) -> TtrpcResult<Empty> {
        let task = self.tasks.get(&request.id)?;
        let (_caller, caller) = watch::channel(());
        let deadline = deadline(context);
        run_uncancelled(async move { checkpoint(&task, &request, caller, deadline).await }).await?;
        Ok(Empty::default())
    }

    async fn kill(&self, _: &TtrpcContext, request: KillRequest) -> TtrpcResult<Empty> {
        let task = self.tasks.get(&request.id)?;
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
        exec::add(&*self.tasks.get(&request.id)?, &request)?;
        Ok(Empty::default())
    }

    async fn resize_pty(&self, _: &TtrpcContext, request: ResizePtyRequest) -> TtrpcResult<Empty> {
        let task = self.tasks.get(&request.id)?;
        let (width, height) = (request.width, request.height);
        if request.exec_id.is_empty() {
            if let Some(io) = &task.record().io {
                io.resize(width, height)?;
            }
        } else {
            let exec = task.exec(&request.exec_id)?;
            exec.resize(width, height)?;
        }
        Ok(Empty::default())
    }

    async fn close_io(&self, _: &TtrpcContext, request: CloseIORequest) -> TtrpcResult<Empty> {
        // Whatever the request says of standard input, as containerd's own shim.
        let task = self.tasks.get(&request.id)?;
        if request.exec_id.is_empty() {
            if let Some(io) = &task.record().io {
                io.close_input();
            }
        } else {
            task.exec(&request.exec_id)?.close_input()?;
        }
        Ok(Empty::default())
    }

    async fn update(&self, _: &TtrpcContext, request: UpdateTaskRequest) -> TtrpcResult<Empty> {
        let task = self.tasks.get(&request.id)?;
        run_uncancelled(async move { task.update(&request.resources.value).await }).await?;
        Ok(Empty::default())
    }

    async fn wait(&self, _: &TtrpcContext, request: WaitRequest) -> TtrpcResult<WaitResponse> {
        let task = self.tasks.get(&request.id)?;
        let exit = if request.exec_id.is_empty() {
            let waiter = Waiter::of(&task);
            let exit = task.wait().await;
            waiter.answered();
            exit
        } else {
            task.exec(&request.exec_id)?.wait().await
        };
        Ok(WaitResponse {
            exit_status: exit.status,
            exited_at: MessageField::some(exit.at.into()),
            ..WaitResponse::default()
        })
    }

    async fn stats(&self, _: &TtrpcContext, request: StatsRequest) -> TtrpcResult<StatsResponse> {
        let metrics = self.tasks.get(&request.id)?.metrics().await?;
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
        // The shim must also answer while its first task is being created.
        let task_pid = self
            .tasks
            .get(&request.id)
            .map_or(0, |task| task.snapshot().pid);
        Ok(ConnectResponse {
            shim_pid: std::process::id(),
            task_pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ConnectResponse::default()
        })
    }

    async fn shutdown(&self, _: &TtrpcContext, _: ShutdownRequest) -> TtrpcResult<Empty> {
        self.tasks.shut_down();
        // When it is answered, containerd closes the connection, and its other calls fail: a Kill
        // whose process was reaped and deleted before the runtime ended, say.
        self.calls.answered().await;
        Ok(Empty::default())
    }
}
