//! A client of containerd's API, for what `ctr` cannot say or shows too little of.
//!
//! Calls block, and fail after [`CALL_DEADLINE`]: a shim that does not answer must not hang a test. A
//! client belongs to one thread; calls that have to go on beside each other get a client each.

mod events;
mod messages;
mod streams;

pub use events::{Event, Events, briefs};
pub use messages::{CheckpointOptions, Resources, RuntimeOptions, Usage, process};
pub use streams::{Input, Output, Streams};

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use containerd_client::services::v1 as api;
use containerd_client::services::v1::snapshots::MountsRequest;
use containerd_client::tonic::metadata::MetadataValue;
use containerd_client::tonic::transport::Channel;
pub use containerd_client::tonic::{Code, Status};
use containerd_client::tonic::{Request, Response};
use containerd_client::types::Mount;
pub use containerd_client::types::v1::{Process, Status as State};
pub use prost_types::Any;
use tokio::runtime::Runtime;

use crate::host::Host;

/// The exec id that means the container's first process.
pub const INIT: &str = "";
/// Within this time every call has to be answered.
pub const CALL_DEADLINE: Duration = Duration::from_secs(60);

const SOCKET: &str = "/run/containerd/containerd.sock";
const NAMESPACE: &str = "default";

/// What a call gives.
pub type Answer<T> = Result<T, Status>;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its pid in the host; 0 where the call does not say it.
    pub pid: u32,
    /// Its exit status; 128 and the signal's number if a signal ended it.
    pub status: u32,
    /// Whether the time of its end is said.
    pub timed: bool,
}

/// A connection to a host's containerd.
#[derive(Debug)]
pub struct Containerd {
    runtime: Runtime,
    channel: Channel,
    socket: PathBuf,
}

/// Calls that go on in another thread.
#[derive(Debug)]
pub struct Beside<T>(std::thread::JoinHandle<T>);

impl<T> Beside<T> {
    /// Whether they go on still.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        !self.0.is_finished()
    }

    /// What they gave, once they are over.
    ///
    /// # Errors
    /// They panicked.
    pub fn outcome(self) -> Result<T> {
        let joined = self.0.join();
        joined.map_err(|_| anyhow::anyhow!("calls in another thread panicked"))
    }
}

/// The code of an answer; `Code::Ok` for a good one.
pub fn code<T>(answer: &Answer<T>) -> Code {
    answer.as_ref().err().map_or(Code::Ok, Status::code)
}

impl Containerd {
    /// Connects to the containerd that runs in a host.
    ///
    /// # Errors
    /// None runs there.
    pub fn connect(host: &Host) -> Result<Self> {
        Self::connect_to(&host.path(SOCKET))
    }

    /// Another client of the same containerd, for another thread.
    ///
    /// # Errors
    /// It does not run any longer.
    pub fn again(&self) -> Result<Self> {
        Self::connect_to(&self.socket)
    }

    fn connect_to(socket: &Path) -> Result<Self> {
        let runtime = new_runtime()?;
        let channel = runtime
            .block_on(containerd_client::connect(socket))
            .with_context(|| format!("connecting to {}", socket.display()))?;
        Ok(Self {
            runtime,
            channel,
            socket: socket.to_owned(),
        })
    }

    /// Subscribes to the events of tasks; those from now on are received.
    ///
    /// # Errors
    /// containerd does not deliver any.
    pub fn events(&self) -> Result<Events> {
        Events::subscribe(self)
    }

    /// Creates the task of a container that `ctr c create` made; the pid of its first process.
    pub fn create(&self, id: &str, streams: &Streams, options: Option<Any>) -> Answer<u32> {
        let request = api::CreateTaskRequest {
            container_id: id.to_owned(),
            rootfs: self.mounts(id)?,
            stdin: streams.stdin.clone(),
            stdout: streams.stdout.clone(),
            stderr: streams.stderr.clone(),
            terminal: streams.terminal,
            options,
            ..Default::default()
        };
        Ok(self
            .tasks(async |mut tasks| tasks.create(of(request)).await)?
            .pid)
    }

    /// Starts the first process of a task, or an exec process; its pid.
    pub fn start(&self, id: &str, exec: &str) -> Answer<u32> {
        let (container_id, exec_id) = (id.to_owned(), exec.to_owned());
        let request = api::StartRequest {
            container_id,
            exec_id,
        };
        Ok(self
            .tasks(async |mut tasks| tasks.start(of(request)).await)?
            .pid)
    }

    /// What is known of a process.
    pub fn state(&self, id: &str, exec: &str) -> Answer<Process> {
        let (container_id, exec_id) = (id.to_owned(), exec.to_owned());
        let request = api::GetRequest {
            container_id,
            exec_id,
        };
        let answer = self.tasks(async |mut tasks| tasks.get(of(request)).await)?;
        answer
            .process
            .ok_or_else(|| Status::internal("an answer without a process"))
    }

    /// Sends a signal to one process.
    pub fn kill(&self, id: &str, exec: &str, signal: u32) -> Answer<()> {
        self.send_signal(id, exec, signal, false)
    }

    /// Sends a signal to all processes of a task.
    pub fn kill_all(&self, id: &str, signal: u32) -> Answer<()> {
        self.send_signal(id, INIT, signal, true)
    }

    fn send_signal(&self, id: &str, exec: &str, signal: u32, all: bool) -> Answer<()> {
        let (container_id, exec_id) = (id.to_owned(), exec.to_owned());
        let request = api::KillRequest {
            container_id,
            exec_id,
            signal,
            all,
        };
        self.tasks(async |mut tasks| tasks.kill(of(request)).await)
    }

    /// Adds an exec process, which [`Containerd::start`] starts; `spec` is made by [`process`].
    pub fn exec(&self, id: &str, exec: &str, streams: &Streams, spec: Any) -> Answer<()> {
        let request = api::ExecProcessRequest {
            container_id: id.to_owned(),
            stdin: streams.stdin.clone(),
            stdout: streams.stdout.clone(),
            stderr: streams.stderr.clone(),
            terminal: streams.terminal,
            spec: Some(spec),
            exec_id: exec.to_owned(),
        };
        self.tasks(async |mut tasks| tasks.exec(of(request)).await)
    }

    /// Waits until a process has ended.
    pub fn wait(&self, id: &str, exec: &str) -> Answer<Ended> {
        let (container_id, exec_id) = (id.to_owned(), exec.to_owned());
        let request = api::WaitRequest {
            container_id,
            exec_id,
        };
        let answer = self.tasks(async |mut tasks| tasks.wait(of(request)).await)?;
        Ok(Ended {
            pid: 0,
            status: answer.exit_status,
            timed: answer.exited_at.is_some_and(|time| time.seconds > 0),
        })
    }

    /// Deletes an ended task.
    pub fn delete(&self, id: &str) -> Answer<Ended> {
        let container_id = id.to_owned();
        let request = api::DeleteTaskRequest { container_id };
        let answer = self.tasks(async |mut tasks| tasks.delete(of(request)).await)?;
        Ok(ended(&answer))
    }

    /// Deletes an ended exec process.
    pub fn delete_exec(&self, id: &str, exec: &str) -> Answer<Ended> {
        let (container_id, exec_id) = (id.to_owned(), exec.to_owned());
        let request = api::DeleteProcessRequest {
            container_id,
            exec_id,
        };
        let answer = self.tasks(async |mut tasks| tasks.delete_process(of(request)).await)?;
        Ok(ended(&answer))
    }

    /// Gives a process's terminal another size.
    pub fn resize_pty(&self, id: &str, exec: &str, (width, height): (u32, u32)) -> Answer<()> {
        let request = api::ResizePtyRequest {
            container_id: id.to_owned(),
            exec_id: exec.to_owned(),
            width,
            height,
        };
        self.tasks(async |mut tasks| tasks.resize_pty(of(request)).await)
    }

    /// Says that no more input will come.
    pub fn close_stdin(&self, id: &str, exec: &str) -> Answer<()> {
        let request = api::CloseIoRequest {
            container_id: id.to_owned(),
            exec_id: exec.to_owned(),
            stdin: true,
        };
        self.tasks(async |mut tasks| tasks.close_io(of(request)).await)
    }

    /// Pauses a task.
    pub fn pause(&self, id: &str) -> Answer<()> {
        let container_id = id.to_owned();
        let request = api::PauseTaskRequest { container_id };
        self.tasks(async |mut tasks| tasks.pause(of(request)).await)
    }

    /// Resumes a paused task.
    pub fn resume(&self, id: &str) -> Answer<()> {
        let container_id = id.to_owned();
        let request = api::ResumeTaskRequest { container_id };
        self.tasks(async |mut tasks| tasks.resume(of(request)).await)
    }

    /// The processes in a task: their pids, with the exec ids of those that are exec processes.
    pub fn pids(&self, id: &str) -> Answer<Vec<(u32, Option<String>)>> {
        let container_id = id.to_owned();
        let request = api::ListPidsRequest { container_id };
        let answer = self.tasks(async |mut tasks| tasks.list_pids(of(request)).await)?;
        let processes = answer.processes.into_iter();
        Ok(processes
            .map(|process| (process.pid, messages::exec_of(process.info)))
            .collect())
    }

    /// Changes a task's limits.
    pub fn update(&self, id: &str, resources: &Resources) -> Answer<()> {
        let request = api::UpdateTaskRequest {
            container_id: id.to_owned(),
            resources: Some(resources.to_any()),
            ..Default::default()
        };
        self.tasks(async |mut tasks| tasks.update(of(request)).await)
    }

    /// What a task uses.
    pub fn metrics(&self, id: &str) -> Answer<Usage> {
        let filters = vec![format!("id=={id}")];
        let request = api::MetricsRequest { filters };
        let answer = self.tasks(async |mut tasks| tasks.metrics(of(request)).await)?;
        let data = answer.metrics.into_iter().find(|metric| metric.id == id);
        let data = data.and_then(|metric| metric.data);
        let data = data.ok_or_else(|| Status::not_found(format!("no metrics of {id}")))?;
        Usage::decode(&data).map_err(|error| Status::internal(error.to_string()))
    }

    /// Checkpoints a task into the directory that the options name.
    pub fn checkpoint(&self, id: &str, options: &CheckpointOptions) -> Answer<()> {
        self.checkpoint_within(CALL_DEADLINE, id, options)
    }

    /// The same by a caller who does not wait longer than this, and tells the shim so.
    pub fn checkpoint_within(
        &self,
        deadline: Duration,
        id: &str,
        options: &CheckpointOptions,
    ) -> Answer<()> {
        let mut request = of(api::CheckpointTaskRequest {
            container_id: id.to_owned(),
            options: Some(options.to_any()),
            ..Default::default()
        });
        request.set_timeout(deadline);
        self.tasks(async |mut tasks| tasks.checkpoint(request).await)
            .map(drop)
    }

    /// Makes calls in another thread, through a client of its own.
    ///
    /// # Errors
    /// containerd does not run any longer.
    pub fn beside<T: Send + 'static>(
        &self,
        calls: impl FnOnce(&Containerd) -> T + Send + 'static,
    ) -> Result<Beside<T>> {
        let other = self.again()?;
        Ok(Beside(std::thread::spawn(move || calls(&other))))
    }

    /// What makes up the root file system of a container.
    fn mounts(&self, id: &str) -> Answer<Vec<Mount>> {
        let request = MountsRequest {
            snapshotter: "native".to_owned(),
            key: id.to_owned(),
        };
        let mut snapshots =
            api::snapshots::snapshots_client::SnapshotsClient::new(self.channel.clone());
        let answer = self.runtime.block_on(snapshots.mounts(of(request)))?;
        Ok(answer.into_inner().mounts)
    }

    fn tasks<T>(
        &self,
        call: impl AsyncFnOnce(api::tasks_client::TasksClient<Channel>) -> Answer<Response<T>>,
    ) -> Answer<T> {
        let tasks = api::tasks_client::TasksClient::new(self.channel.clone());
        Ok(self.runtime.block_on(call(tasks))?.into_inner())
    }
}

fn new_runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("making a runtime for a client of containerd")
}

/// A request in the namespace of the tests, with the deadline of all calls.
fn of<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = MetadataValue::from_static(NAMESPACE);
    request
        .metadata_mut()
        .insert("containerd-namespace", namespace);
    request.set_timeout(CALL_DEADLINE);
    request
}

fn ended(answer: &api::DeleteResponse) -> Ended {
    Ended {
        pid: answer.pid,
        status: answer.exit_status,
        timed: answer.exited_at.is_some_and(|time| time.seconds > 0),
    }
}
