//! Containers run through containerd's API, so that no client program is part of what is measured.

use std::fs::{File, OpenOptions};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use containerd_client::Client;
use containerd_client::services::v1::container::Runtime;
use containerd_client::services::v1::{
    CheckpointTaskRequest, Container, CreateContainerRequest, CreateTaskRequest,
    DeleteContainerRequest, DeleteTaskRequest, KillRequest, PauseTaskRequest, StartRequest,
    WaitRequest,
};
use containerd_client::tonic::Request;
use containerd_client::tonic::metadata::MetadataValue;
use containerd_client::types::Mount;
use serde_json::{Value, json};
use stasis_integration::image::Image;
use stasis_integration::lab::Lab;

/// `ctr`'s own, so that it finds these containers too.
const NAMESPACE: &str = "default";
const DIRECTORY: &str = "/run/bench";
const SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// A connection to a lab's containerd, and what the containers have in common.
pub(crate) struct Api {
    executor: tokio::runtime::Runtime,
    client: Client,
    spec: Value,
    /// The ends that an engine reads: without them a shim would wait for somebody to open them.
    _streams: [File; 2],
}

/// A container with its task.
pub(crate) struct Task<'a> {
    api: &'a Api,
    id: String,
    /// The first process, as the host sees it.
    pub(crate) pid: u32,
}

/// How long the parts of a container's life took, as the engine saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) create: Duration,
    pub(crate) start: Duration,
    /// From the answer to the start until the engine knew of the end.
    pub(crate) exit: Duration,
    pub(crate) delete: Duration,
}

impl Times {
    pub(crate) fn whole(&self) -> Duration {
        self.create + self.start + self.exit + self.delete
    }
}

impl Api {
    /// Connects to containerd in the lab. The containers' files are one copy of the test image, made
    /// here: snapshots are the engine's work and would blur what is the shim's.
    pub(crate) fn connect(lab: &Lab) -> Result<Self> {
        let rootfs = format!("{DIRECTORY}/rootfs");
        lab.host.run(&["mkdir", "-p", &rootfs])?;
        lab.host.run(&[
            "ctr",
            "image",
            "mount",
            "--rw",
            Image::DEFAULT_NAME,
            &rootfs,
        ])?;
        lab.host.run(&["runc", "spec", "--bundle", DIRECTORY])?;
        let spec = std::fs::read(lab.host.path(format!("{DIRECTORY}/config.json")))?;
        let streams = ["stdout", "stderr"].map(|name| -> Result<File> {
            let path = format!("{DIRECTORY}/{name}");
            lab.host.run(&["mkfifo", &path])?;
            // Opened for both, a pipe waits for no other end.
            let mut options = OpenOptions::new();
            Ok(options.read(true).write(true).open(lab.host.path(path))?)
        });
        let [stdout, stderr] = streams;
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let socket = lab.host.path("/run/containerd/containerd.sock");
        let client = executor
            .block_on(Client::from_path(socket))
            .context("connecting to containerd")?;
        Ok(Self {
            executor,
            client,
            spec: edit(serde_json::from_slice(&spec)?)
                .context("the spec that `runc spec` writes has changed")?,
            _streams: [stdout?, stderr?],
        })
    }

    /// Runs a container to its end and removes it.
    pub(crate) fn run(&self, runtime: &str, id: &str, command: &[&str]) -> Result<Times> {
        self.register(runtime, id, command)?;
        let begin = Instant::now();
        let task = self.create_task(id)?;
        let create = begin.elapsed();
        task.start()?;
        let start = begin.elapsed() - create;
        let status = task.wait()?;
        let exit = begin.elapsed() - create - start;
        task.delete()?;
        let delete = begin.elapsed() - create - start - exit;
        task.unregister()?;
        ensure!(
            status == 0,
            "{command:?} in {id} under {runtime} ended with {status}"
        );
        Ok(Times {
            create,
            start,
            exit,
            delete,
        })
    }

    /// Starts a container.
    pub(crate) fn start(&self, runtime: &str, id: &str, command: &[&str]) -> Result<Task<'_>> {
        self.register(runtime, id, command)?;
        let task = self.create_task(id)?;
        task.start()?;
        Ok(task)
    }

    fn register(&self, runtime: &str, id: &str, command: &[&str]) -> Result<()> {
        let mut spec = self.spec.clone();
        spec["process"]["args"] = json!(command);
        spec["linux"]["cgroupsPath"] = json!(format!("/bench/{id}"));
        let container = Container {
            id: id.to_owned(),
            runtime: Some(Runtime {
                name: runtime.to_owned(),
                options: None,
            }),
            spec: Some(prost_types::Any {
                type_url: SPEC_TYPE.to_owned(),
                value: serde_json::to_vec(&spec)?,
            }),
            ..Default::default()
        };
        let message = CreateContainerRequest {
            container: Some(container),
        };
        let mut containers = self.client.containers();
        self.executor
            .block_on(containers.create(request(message)))?;
        Ok(())
    }

    fn create_task(&self, id: &str) -> Result<Task<'_>> {
        let rootfs = Mount {
            r#type: "bind".to_owned(),
            source: format!("{DIRECTORY}/rootfs"),
            options: vec!["rbind".to_owned(), "rw".to_owned()],
            ..Default::default()
        };
        let message = CreateTaskRequest {
            container_id: id.to_owned(),
            rootfs: vec![rootfs],
            stdout: format!("{DIRECTORY}/stdout"),
            stderr: format!("{DIRECTORY}/stderr"),
            ..Default::default()
        };
        let mut tasks = self.client.tasks();
        let answer = self
            .executor
            .block_on(tasks.create(request(message)))
            .with_context(|| format!("creating {id}"))?;
        Ok(Task {
            api: self,
            id: id.to_owned(),
            pid: answer.into_inner().pid,
        })
    }
}

impl Task<'_> {
    fn start(&self) -> Result<()> {
        let message = StartRequest {
            container_id: self.id.clone(),
            ..Default::default()
        };
        let mut tasks = self.api.client.tasks();
        self.api.executor.block_on(tasks.start(request(message)))?;
        Ok(())
    }

    /// Waits for the end; the exit status.
    pub(crate) fn wait(&self) -> Result<u32> {
        let message = WaitRequest {
            container_id: self.id.clone(),
            ..Default::default()
        };
        let mut tasks = self.api.client.tasks();
        let answer = self.api.executor.block_on(tasks.wait(request(message)))?;
        Ok(answer.into_inner().exit_status)
    }

    /// Pauses the container, as `ctr` does, and checkpoints it into a directory of the host; it ends.
    /// Without the pause most checkpoints take 100 ms longer, which would hide what the shim takes.
    pub(crate) fn checkpoint(&self, directory: &str) -> Result<()> {
        let message = PauseTaskRequest {
            container_id: self.id.clone(),
        };
        let mut tasks = self.api.client.tasks();
        self.api.executor.block_on(tasks.pause(request(message)))?;
        let message = CheckpointTaskRequest {
            container_id: self.id.clone(),
            options: Some(prost_types::Any {
                type_url: "containerd.runc.v1.CheckpointOptions".to_owned(),
                value: checkpoint_options(directory)?,
            }),
            ..Default::default()
        };
        self.api
            .executor
            .block_on(tasks.checkpoint(request(message)))?;
        Ok(())
    }

    /// Kills the container, if it still runs, and removes it.
    pub(crate) fn remove(self) -> Result<()> {
        let message = KillRequest {
            container_id: self.id.clone(),
            signal: 9,
            ..Default::default()
        };
        let mut tasks = self.api.client.tasks();
        // One that has ended refuses the signal.
        let _ = self.api.executor.block_on(tasks.kill(request(message)));
        self.wait()?;
        self.delete()?;
        self.unregister()
    }

    fn delete(&self) -> Result<()> {
        let message = DeleteTaskRequest {
            container_id: self.id.clone(),
        };
        let mut tasks = self.api.client.tasks();
        self.api.executor.block_on(tasks.delete(request(message)))?;
        Ok(())
    }

    fn unregister(&self) -> Result<()> {
        let message = DeleteContainerRequest {
            id: self.id.clone(),
        };
        let mut containers = self.api.client.containers();
        self.api
            .executor
            .block_on(containers.delete(request(message)))?;
        Ok(())
    }
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = MetadataValue::from_static(NAMESPACE);
    request
        .metadata_mut()
        .insert("containerd-namespace", namespace);
    request
}

/// The message `CheckpointOptions { exit: true, image_path }`, which containerd's client crate lacks:
/// field 1 is a number, field 8 a text.
fn checkpoint_options(image_path: &str) -> Result<Vec<u8>> {
    let length = u8::try_from(image_path.len()).ok();
    let length = length.filter(|length| *length < 0x80);
    let length = length.context("the path needs a length of more than one byte")?;
    let mut message = vec![1 << 3, 1, 8 << 3 | 2, length];
    message.extend_from_slice(image_path.as_bytes());
    Ok(message)
}

/// Makes the spec one of containers without a terminal on the host's network: a network of its own
/// costs the kernel more than all else, at a time of the kernel's choosing.
fn edit(mut spec: Value) -> Option<Value> {
    *spec.pointer_mut("/process/terminal")? = json!(false);
    *spec.pointer_mut("/root/readonly")? = json!(false);
    let namespaces = spec.pointer_mut("/linux/namespaces")?.as_array_mut()?;
    namespaces.retain(|namespace| namespace["type"] != "network");
    Some(spec)
}
