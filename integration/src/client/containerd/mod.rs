//! A client of containerd's API, for requests that `ctr` cannot make or shows too little of.
//!
//! Calls block, and fail after [`CALL_DEADLINE`]: a shim that does not answer must not hang a test.
//! A client belongs to one thread; calls that have to go on beside each other get a client each.

mod containers;
mod events;
mod messages;
mod streams;
mod tasks;

pub use events::{Event, Events, Told, briefs};
pub use messages::{
    CheckpointOptions, MetricsV2, Resources, RuntimeOptions, Usage, process, to_any,
};
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
pub use containerd_client::types::Mount;
pub use containerd_client::types::v1::{Process, Status as State};
pub use prost_types::Any;
use tokio::runtime::Runtime;

use crate::host::Host;

/// The exec id that means the container's first process.
pub const INIT: &str = "";
/// Within this time every call has to be answered.
pub const CALL_DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const SOCKET: &str = "/run/containerd/containerd.sock";
const NAMESPACE: &str = "default";

/// The answer to a call.
pub type Answer<T> = Result<T, Status>;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its pid in the host; 0 where the call does not say it.
    pub pid: u32,
    /// Its exit status; 128 and the signal's number if a signal ended it.
    pub status: u32,
    /// Whether it has a time of its end.
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
    /// Whether the calls still go on.
    pub fn goes_on(&self) -> bool {
        !self.0.is_finished()
    }

    /// Returns the result of the calls, once they are over.
    pub fn outcome(self) -> Result<T> {
        let joined = self.0.join();
        joined.map_err(|_| anyhow::anyhow!("calls in another thread panicked"))
    }
}

/// Returns the code of an answer; `Code::Ok` for a good one.
pub fn code<T>(answer: &Answer<T>) -> Code {
    answer.as_ref().err().map_or(Code::Ok, Status::code)
}

impl Containerd {
    /// Connects to the containerd that runs in a host.
    pub fn connect(host: &Host) -> Result<Self> {
        Self::connect_to(&host.path(SOCKET))
    }

    /// Makes calls in another thread, through a client of its own.
    pub fn beside<T: Send + 'static>(
        &self,
        calls: impl FnOnce(&Containerd) -> T + Send + 'static,
    ) -> Result<Beside<T>> {
        let other = self.again()?;
        Ok(Beside(std::thread::spawn(move || calls(&other))))
    }

    /// Connects another client to the same containerd, for another thread.
    pub fn again(&self) -> Result<Self> {
        Self::connect_to(&self.socket)
    }

    /// Connects to the containerd at this socket.
    pub fn connect_to(socket: &Path) -> Result<Self> {
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

    /// Subscribes to the events of tasks; events from now on are received.
    pub fn events(&self) -> Result<Events> {
        Events::subscribe(self)
    }

    /// Returns the mounts of a container's root file system.
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

pub(crate) fn new_runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("making a runtime for a client of containerd")
}

/// Makes a request in the namespace of the tests, with the deadline of all calls.
fn of<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let namespace = MetadataValue::from_static(NAMESPACE);
    request
        .metadata_mut()
        .insert("containerd-namespace", namespace);
    request.set_timeout(CALL_DEADLINE);
    request
}
