//! Containers run through containerd's API, so that no client program is part of what is measured.

use std::fs::{File, OpenOptions};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use containerd_client::types::Mount;
use serde_json::{Value, json};
use stasis_integration::client::containerd::{CheckpointOptions, Containerd, INIT, Streams};
use stasis_integration::container::bundle::lay_out;
use stasis_integration::host::installed::StasisHost;

const DIRECTORY: &str = "/run/bench";

/// A connection to a test host's containerd, and what the containers have in common.
pub(crate) struct Api {
    client: Containerd,
    spec: Value,
    /// The read ends of an engine: without them a shim waits until another process opens them.
    _streams: [File; 2],
}

/// A container with its task.
pub(crate) struct Task<'a> {
    client: &'a Containerd,
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
    /// Connects to containerd in the test host. The containers' files are one copy of the test
    /// image, made here: snapshots are the engine's work and would blur what is the shim's.
    pub(crate) fn connect(stasis: &StasisHost) -> Result<Self> {
        let spec = lay_out(stasis, DIRECTORY)?;
        let streams = ["stdout", "stderr"].map(|name| -> Result<File> {
            let path = format!("{DIRECTORY}/{name}");
            stasis.run(&["mkfifo", &path])?;
            // Opening a pipe for reading and writing does not wait for the other end.
            let mut options = OpenOptions::new();
            Ok(options.read(true).write(true).open(stasis.path(path))?)
        });
        let [stdout, stderr] = streams;
        Ok(Self {
            client: Containerd::connect(&stasis.host)?,
            spec: edit(spec).context("the spec that `runc spec` writes has changed")?,
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
        Ok(self.client.add_container(id, runtime, &spec)?)
    }

    fn create_task(&self, id: &str) -> Result<Task<'_>> {
        let rootfs = Mount {
            r#type: "bind".to_owned(),
            source: format!("{DIRECTORY}/rootfs"),
            options: vec!["rbind".to_owned(), "rw".to_owned()],
            ..Default::default()
        };
        let streams = Streams::new([
            "",
            &format!("{DIRECTORY}/stdout"),
            &format!("{DIRECTORY}/stderr"),
        ]);
        let pid = self
            .client
            .create_on(vec![rootfs], id, &streams, None)
            .with_context(|| format!("creating {id}"))?;
        Ok(Task {
            client: &self.client,
            id: id.to_owned(),
            pid,
        })
    }
}

impl Task<'_> {
    fn start(&self) -> Result<()> {
        self.client.start(&self.id, INIT)?;
        Ok(())
    }

    /// Waits for the container's end, and returns the exit status.
    pub(crate) fn wait(&self) -> Result<u32> {
        Ok(self.client.wait(&self.id, INIT)?.status)
    }

    /// Pauses the container, as `ctr` does, and checkpoints it into a directory of the host; it
    /// ends. Without the pause most checkpoints take 100 ms longer, which would hide what the shim
    /// takes.
    pub(crate) fn checkpoint(&self, directory: &str) -> Result<()> {
        let options = CheckpointOptions {
            exit: true,
            image_path: directory.to_owned(),
            ..Default::default()
        };
        self.client.pause(&self.id)?;
        Ok(self.client.checkpoint(&self.id, &options)?)
    }

    /// Kills the container, if it still runs, and removes it.
    pub(crate) fn remove(self) -> Result<()> {
        // A container that has ended refuses the signal.
        let _ = self.client.kill(&self.id, INIT, 9);
        self.wait()?;
        self.delete()?;
        self.unregister()
    }

    fn delete(&self) -> Result<()> {
        self.client.delete(&self.id)?;
        Ok(())
    }

    fn unregister(&self) -> Result<()> {
        Ok(self.client.remove_container(&self.id)?)
    }
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
