//! Requests and answers of CRI (`runtime.v1`), with the fields that tests use.

use std::collections::HashMap;

use prost::Message;

use super::container_config::{ContainerConfig, ImageSpec};
use super::pod_config::PodSandboxConfig;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<PodSandboxConfig>,
    #[prost(string, tag = "2")]
    pub(super) runtime_handler: String,
}

/// A request about a pod or a container by its id alone, or an answer that gives the id.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Id {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

/// A request for the status of a pod or a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StatusOf {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(bool, tag = "2")]
    pub(super) verbose: bool,
}

/// The answer about a pod; only the part that comes with `verbose`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodStatus {
    #[prost(map = "string, string", tag = "2")]
    pub(super) info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CreateContainer {
    #[prost(string, tag = "1")]
    pub(super) pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(super) sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct StopContainer {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(int64, tag = "2")]
    pub(super) timeout: i64,
}

/// How far a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerState {
    /// It has not been started.
    Created = 0,
    /// It runs.
    Running = 1,
    /// It has ended.
    Exited = 2,
    /// containerd does not know its state.
    Unknown = 3,
}

/// The status of a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerStatus {
    /// Its state.
    #[prost(enumeration = "ContainerState", tag = "3")]
    pub state: i32,
    /// The nanosecond of its end.
    #[prost(int64, tag = "6")]
    pub finished_at: i64,
    /// Its exit code.
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
    /// Why it is in its state, in a word.
    #[prost(string, tag = "10")]
    pub reason: String,
    /// The reason in more words.
    #[prost(string, tag = "11")]
    pub message: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ContainerStatusAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<ContainerStatus>,
    #[prost(map = "string, string", tag = "2")]
    pub(super) info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ExecSync {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) cmd: Vec<String>,
    #[prost(int64, tag = "3")]
    pub(super) timeout: i64,
}

/// The result of a command in a container, and its output.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Executed {
    /// Its standard output.
    #[prost(bytes = "vec", tag = "1")]
    pub stdout: Vec<u8>,
    /// Its standard error.
    #[prost(bytes = "vec", tag = "2")]
    pub stderr: Vec<u8>,
    /// Its exit code.
    #[prost(int32, tag = "3")]
    pub exit_code: i32,
}

/// The resource usage of a container.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ContainerStats {
    /// Its processor time.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<CpuUsage>,
    /// Its memory.
    #[prost(message, optional, tag = "3")]
    pub memory: Option<MemoryUsage>,
}

/// Processor time.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CpuUsage {
    /// Nanoseconds on all processors.
    #[prost(message, optional, tag = "2")]
    pub usage_core_nano_seconds: Option<Number>,
}

/// Memory.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct MemoryUsage {
    /// Bytes without those that the kernel could take back at once.
    #[prost(message, optional, tag = "2")]
    pub working_set_bytes: Option<Number>,
    /// All bytes.
    #[prost(message, optional, tag = "4")]
    pub usage_bytes: Option<Number>,
}

/// A number that may be missing.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Number {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct ContainerStatsAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) stats: Option<ContainerStats>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CheckpointContainer {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
    #[prost(string, tag = "2")]
    pub(super) location: String,
    #[prost(int64, tag = "3")]
    pub(super) timeout: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PullImage {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<ImageSpec>,
    #[prost(message, optional, tag = "2")]
    pub(super) auth: Option<Auth>,
}

/// What a pod's `imagePullSecrets` say about a registry.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Auth {
    #[prost(string, tag = "1")]
    pub(super) username: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

/// An answer without content.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Done {}
