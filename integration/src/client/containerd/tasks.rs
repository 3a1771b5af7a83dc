//! The calls of containerd's task service.

use std::time::Duration;

use anyhow::{Result, ensure};
use containerd_client::services::v1 as api;
use containerd_shim_protos::protobuf::Message;
use prost_types::Any;

use super::{
    Answer, CALL_DEADLINE, CheckpointOptions, Containerd, Ended, INIT, MetricsV2, Mount, Process,
    Resources, Status, Streams, Usage, messages, of, to_any,
};

impl Containerd {
    /// Creates the task of a container that `ctr c create` made; returns its first process's pid.
    pub fn create(&self, id: &str, streams: &Streams, options: Option<Any>) -> Answer<u32> {
        self.create_on(self.mounts(id)?, id, streams, options)
    }

    /// Creates a task on a root file system of the caller's.
    pub fn create_on(
        &self,
        rootfs: Vec<Mount>,
        id: &str,
        streams: &Streams,
        options: Option<Any>,
    ) -> Answer<u32> {
        let request = api::CreateTaskRequest {
            container_id: id.to_owned(),
            rootfs,
            stdin: streams.stdin.clone(),
            stdout: streams.stdout.clone(),
            stderr: streams.stderr.clone(),
            terminal: streams.terminal,
            options,
            ..Default::default()
        };
        self.create_within(CALL_DEADLINE, request)
    }

    /// Creates a task without streams, for a caller that does not wait longer than `deadline`,
    /// which the shim learns.
    pub fn try_create(&self, deadline: Duration, id: &str) -> Answer<u32> {
        let request = api::CreateTaskRequest {
            container_id: id.to_owned(),
            rootfs: self.mounts(id)?,
            ..Default::default()
        };
        self.create_within(deadline, request)
    }

    fn create_within(&self, deadline: Duration, request: api::CreateTaskRequest) -> Answer<u32> {
        let mut request = of(request);
        request.set_timeout(deadline);
        Ok(self
            .tasks(async |mut tasks| tasks.create(request).await)?
            .pid)
    }

    /// Starts the first process of a task, or an exec process; returns its pid.
    pub fn start(&self, id: &str, exec: &str) -> Answer<u32> {
        self.start_within(CALL_DEADLINE, id, exec)
    }

    /// Starts a process for a caller that waits no longer than `deadline`, which the shim learns.
    pub fn start_within(&self, deadline: Duration, id: &str, exec: &str) -> Answer<u32> {
        let (container_id, exec_id) = (id.to_owned(), exec.to_owned());
        let mut request = of(api::StartRequest {
            container_id,
            exec_id,
        });
        request.set_timeout(deadline);
        Ok(self
            .tasks(async |mut tasks| tasks.start(request).await)?
            .pid)
    }

    /// Returns the state of a process.
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
        let (container_id, exec_id) = (id.to_owned(), exec.to_owned());
        let request = api::KillRequest {
            container_id,
            exec_id,
            signal,
            all: false,
        };
        self.tasks(async |mut tasks| tasks.kill(of(request)).await)
    }

    /// Adds an exec process, which [`Containerd::start`] starts; `spec` is made by
    /// [`process`](super::process).
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

    /// Kills a task's first process, and waits for its end.
    pub fn kill_init(&self, id: &str) -> Result<()> {
        self.kill(id, INIT, 9)?;
        let status = self.wait(id, INIT)?.status;
        ensure!(status == 137, "SIGKILL has ended {id} with {status}");
        Ok(())
    }

    /// Adds an exec process, runs it to its end, and deletes it. Returns its status.
    pub fn run_exec(&self, id: &str, exec: &str, streams: &Streams, spec: Any) -> Result<u32> {
        self.exec(id, exec, streams, spec)?;
        self.start(id, exec)?;
        let status = self.wait(id, exec)?.status;
        let deleted = self.delete_exec(id, exec)?.status;
        ensure!(
            deleted == status,
            "{exec} ended with {status}, and is deleted with {deleted}"
        );
        Ok(status)
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

    /// Reports that no more input will come.
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
        self.pause_within(CALL_DEADLINE, id)
    }

    /// Pauses a task for a caller that does not wait longer than `deadline`, which the shim learns.
    pub fn pause_within(&self, deadline: Duration, id: &str) -> Answer<()> {
        let container_id = id.to_owned();
        let mut request = of(api::PauseTaskRequest { container_id });
        request.set_timeout(deadline);
        self.tasks(async |mut tasks| tasks.pause(request).await)
    }

    /// Resumes a paused task.
    pub fn resume(&self, id: &str) -> Answer<()> {
        let container_id = id.to_owned();
        let request = api::ResumeTaskRequest { container_id };
        self.tasks(async |mut tasks| tasks.resume(of(request)).await)
    }

    /// Lists the processes in a task: their pids, with the exec ids of exec processes.
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

    /// Returns the resource usage of a task.
    pub fn metrics(&self, id: &str) -> Answer<Usage> {
        let data = self.metrics_data(id)?;
        Usage::decode(&data).map_err(|error| Status::internal(error.to_string()))
    }

    /// Returns all metrics of a task of version 2 of cgroups.
    pub fn metrics_of_version_2(&self, id: &str) -> Answer<MetricsV2> {
        let data = self.metrics_data(id)?;
        let metrics = MetricsV2::parse_from_bytes(&data.value);
        metrics.map_err(|error| Status::internal(error.to_string()))
    }

    fn metrics_data(&self, id: &str) -> Answer<Any> {
        let filters = vec![format!("id=={id}")];
        let request = api::MetricsRequest { filters };
        let answer = self.tasks(async |mut tasks| tasks.metrics(of(request)).await)?;
        let data = answer.metrics.into_iter().find(|metric| metric.id == id);
        let data = data.and_then(|metric| metric.data);
        data.ok_or_else(|| Status::not_found(format!("no metrics of {id}")))
    }

    /// Checkpoints a task into the directory that the options name.
    pub fn checkpoint(&self, id: &str, options: &CheckpointOptions) -> Answer<()> {
        self.checkpoint_within(CALL_DEADLINE, id, options)
    }

    /// Checkpoints for a caller that does not wait longer than `deadline`, which the shim learns.
    pub fn checkpoint_within(
        &self,
        deadline: Duration,
        id: &str,
        options: &CheckpointOptions,
    ) -> Answer<()> {
        let mut request = of(api::CheckpointTaskRequest {
            container_id: id.to_owned(),
            options: Some(to_any(options)?),
            ..Default::default()
        });
        request.set_timeout(deadline);
        self.tasks(async |mut tasks| tasks.checkpoint(request).await)
            .map(drop)
    }
}

fn ended(answer: &api::DeleteResponse) -> Ended {
    Ended {
        pid: answer.pid,
        status: answer.exit_status,
        timed: answer.exited_at.is_some_and(|time| time.seconds > 0),
    }
}
