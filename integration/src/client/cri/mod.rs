//! A client of containerd's CRI plugin: the calls that the kubelet makes, and a host that answers
//! them.
//!
//! Calls block, and fail after [`CALL_DEADLINE`].

/// Declares messages. A field is `name: type = tag (how prost encodes it)`.
macro_rules! messages {
    ($(
        $(#[$about:meta])*
        $visible:vis struct $name:ident {
            $($(#[$about_field:meta])* $field:ident: $type:ty = $tag:literal ($($encoded:tt)+),)*
        }
    )+) => {$(
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, prost::Message)]
        $visible struct $name {
            $($(#[$about_field])* #[prost($($encoded)+, tag = $tag)] $visible $field: $type,)*
        }
    )+};
}

mod container_config;
mod messages;
mod node;
mod pod;
mod pod_config;
pub mod settings;

pub use container_config::ContainerConfig;
pub use messages::{ContainerState, ContainerStats, ContainerStatus, Executed};
pub use node::{Node, on_a_node};
pub use pod::{Container, Pod};

use std::collections::HashMap;

use anyhow::{Context, Result};
use container_config::ImageSpec;
use containerd_client::tonic::client::Grpc;
use containerd_client::tonic::codegen::http::uri::PathAndQuery;
use containerd_client::tonic::transport::Channel;
use containerd_client::tonic::{Request, Status};
use pod_config::PodSandboxConfig;
use prost::Message;
use tokio::runtime::Runtime;
use tonic_prost::ProstCodec;

use crate::check::wait::wait_until_clear;
use crate::client::containerd::{Answer, CALL_DEADLINE, SOCKET, new_runtime};
use crate::host::Host;
use crate::host::image::Image;

/// The runtime handler that the shipped snippets make.
const HANDLER: &str = "stasis";

/// A connection to the CRI plugin of a host's containerd.
#[derive(Debug)]
pub struct Cri {
    runtime: Runtime,
    channel: Channel,
}

impl Cri {
    /// Connects to the containerd that runs in a host, and waits until CRI is ready: after a
    /// restart it first recovers the pods that exist.
    ///
    /// # Errors
    /// None runs there, or its CRI is not ready after 30 s.
    pub fn connect(host: &Host) -> Result<Self> {
        let socket = host.path(SOCKET);
        let runtime = new_runtime()?;
        let channel = runtime
            .block_on(containerd_client::connect(&socket))
            .with_context(|| format!("connecting to {}", socket.display()))?;
        let client = Self { runtime, channel };
        wait_until_clear(|| {
            let list = "/runtime.v1.RuntimeService/ListPodSandbox";
            let asked = client.call(list, messages::Done {});
            Ok(asked
                .map(|messages::Done {}| ())
                .err()
                .map(|error| error.to_string()))
        })?;
        Ok(client)
    }

    /// Pulls the test image.
    pub fn pull(&self) -> Answer<()> {
        self.pull_image(Image::DEFAULT_NAME, None)
    }

    /// Pulls an image, as this user with this password.
    pub fn pull_as(&self, image: &str, user: &str, password: &str) -> Answer<()> {
        let auth = messages::Auth {
            username: user.to_owned(),
            password: password.to_owned(),
        };
        self.pull_image(image, Some(auth))
    }

    fn pull_image(&self, image: &str, auth: Option<messages::Auth>) -> Answer<()> {
        let image = Some(ImageSpec {
            image: image.to_owned(),
        });
        let request = messages::PullImage { image, auth };
        self.call("/runtime.v1.ImageService/PullImage", request)
            .map(|messages::Done {}| ())
    }

    /// Runs a pod on the host's network, under the handler of the shipped snippets.
    pub fn pod(&self, name: &str) -> Answer<Pod<'_>> {
        self.run_pod(PodSandboxConfig::on_host_network(name))
    }

    /// Runs such a pod with annotations.
    pub fn annotated_pod(&self, name: &str, annotations: &[(&str, &str)]) -> Answer<Pod<'_>> {
        self.run_pod(PodSandboxConfig::annotated(name, annotations))
    }

    /// Runs a pod with a user namespace (`hostUsers: false`), and so with a network of its own.
    pub fn pod_in_a_user_namespace(&self, name: &str) -> Answer<Pod<'_>> {
        self.run_pod(PodSandboxConfig::in_a_user_namespace(name))
    }

    fn run_pod(&self, config: PodSandboxConfig) -> Answer<Pod<'_>> {
        let request = messages::RunPodSandbox {
            config: Some(config.clone()),
            runtime_handler: HANDLER.to_owned(),
        };
        let answer: messages::Id =
            self.call("/runtime.v1.RuntimeService/RunPodSandbox", request)?;
        let status = messages::StatusOf {
            id: answer.id.clone(),
            verbose: true,
        };
        let status: messages::PodStatus =
            self.call("/runtime.v1.RuntimeService/PodSandboxStatus", status)?;
        let (id, pid) = (answer.id, pid(&status.info)?);
        Ok(Pod {
            cri: self,
            config,
            id,
            pid,
        })
    }

    /// Stops and removes a pod with all that is in it.
    pub fn remove_pod(&self, id: &str) -> Answer<()> {
        self.about("/runtime.v1.RuntimeService/StopPodSandbox", id)?;
        self.about("/runtime.v1.RuntimeService/RemovePodSandbox", id)
    }

    /// Starts a container that was created; returns its first process's pid, 0 if it has ended.
    pub fn start(&self, id: &str) -> Answer<u32> {
        self.about("/runtime.v1.RuntimeService/StartContainer", id)?;
        pid(&self.container(id)?.info)
    }

    /// Stops a container: SIGTERM, and SIGKILL after `grace` seconds.
    pub fn stop(&self, id: &str, grace: i64) -> Answer<()> {
        let request = messages::StopContainer {
            container_id: id.to_owned(),
            timeout: grace,
        };
        self.call("/runtime.v1.RuntimeService/StopContainer", request)
            .map(|messages::Done {}| ())
    }

    /// Removes a container.
    pub fn remove(&self, id: &str) -> Answer<()> {
        self.about("/runtime.v1.RuntimeService/RemoveContainer", id)
    }

    /// Returns the status of a container.
    pub fn status(&self, id: &str) -> Answer<ContainerStatus> {
        let status = self.container(id)?.status;
        status.ok_or_else(|| Status::internal("an answer without a status"))
    }

    /// Waits until a container has ended; returns its status.
    ///
    /// # Errors
    /// It has not after 30 s.
    pub fn wait(&self, id: &str) -> Result<ContainerStatus> {
        wait_until_clear(|| {
            let status = self.status(id)?;
            Ok((status.state() != ContainerState::Exited).then(|| format!("{status:?}")))
        })?;
        Ok(self.status(id)?)
    }

    /// Runs a command in a container.
    pub fn exec(&self, id: &str, command: &[&str]) -> Answer<Executed> {
        let request = messages::ExecSync {
            container_id: id.to_owned(),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: 0,
        };
        self.call("/runtime.v1.RuntimeService/ExecSync", request)
    }

    /// Returns the resource usage of a container.
    pub fn stats(&self, id: &str) -> Answer<ContainerStats> {
        let request = messages::Id { id: id.to_owned() };
        let answer: messages::ContainerStatsAnswer =
            self.call("/runtime.v1.RuntimeService/ContainerStats", request)?;
        let stats = answer.stats;
        stats.ok_or_else(|| Status::internal("an answer without stats"))
    }

    /// Checkpoints a container into an archive at a path of the host; it goes on.
    pub fn checkpoint(&self, id: &str, location: &str) -> Answer<()> {
        let request = messages::CheckpointContainer {
            container_id: id.to_owned(),
            location: location.to_owned(),
            timeout: 0,
        };
        self.call("/runtime.v1.RuntimeService/CheckpointContainer", request)
            .map(|messages::Done {}| ())
    }

    fn container(&self, id: &str) -> Answer<messages::ContainerStatusAnswer> {
        let request = messages::StatusOf {
            id: id.to_owned(),
            verbose: true,
        };
        self.call("/runtime.v1.RuntimeService/ContainerStatus", request)
    }

    fn about(&self, method: &'static str, id: &str) -> Answer<()> {
        let request = messages::Id { id: id.to_owned() };
        self.call(method, request).map(|messages::Done {}| ())
    }

    fn call<Q, A>(&self, method: &'static str, message: Q) -> Answer<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = Request::new(message);
        request.set_timeout(CALL_DEADLINE);
        let mut service = Grpc::new(self.channel.clone());
        let answer = self.runtime.block_on(async {
            let ready = service.ready().await;
            ready.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(method);
            service.unary(request, path, ProstCodec::default()).await
        });
        Ok(answer?.into_inner())
    }
}

/// Takes the pid from the verbose part of containerd's answer.
fn pid(info: &HashMap<String, String>) -> Answer<u32> {
    let info = info.get("info").map_or("", String::as_str);
    let info: Result<serde_json::Value, _> = serde_json::from_str(info);
    let pid = info.ok().and_then(|info| info["pid"].as_u64());
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    pid.ok_or_else(|| Status::internal("an answer without a pid"))
}
