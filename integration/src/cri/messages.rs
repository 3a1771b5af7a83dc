//! Messages of CRI (`runtime.v1`), with the fields that tests use.

use std::collections::HashMap;

use prost::Message;

/// Namespaces of a pod or a container: 0 is the pod's, 1 a container's own, 2 the host's.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct NamespaceOption {
    /// The network.
    #[prost(int32, tag = "1")]
    pub network: i32,
    /// Process ids.
    #[prost(int32, tag = "2")]
    pub pid: i32,
}

/// Names a pod; all of it is unique on a node.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodSandboxMetadata {
    /// The pod's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its uid in Kubernetes.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Its namespace in Kubernetes.
    #[prost(string, tag = "3")]
    pub namespace: String,
}

/// What a pod is to be.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodSandboxConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Where the logs of its containers go.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// What Linux makes of it.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

/// The pod's settings on Linux.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LinuxPodSandboxConfig {
    /// The pod's cgroup.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
    /// Its namespaces.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxSandboxSecurityContext>,
}

/// Holds the pod's namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct LinuxSandboxSecurityContext {
    /// The namespaces.
    #[prost(message, optional, tag = "1")]
    pub namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<PodSandboxConfig>,
    #[prost(string, tag = "2")]
    pub(super) runtime_handler: String,
}

/// A request about a pod or a container that says no more than its id, or an answer that gives it.
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

/// The answer about a pod; only what is said when asked for everything.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct PodStatus {
    #[prost(map = "string, string", tag = "2")]
    pub(super) info: HashMap<String, String>,
}

/// Names a container in its pod.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerMetadata {
    /// The container's name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// An image.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ImageSpec {
    /// Its name; or the path of a checkpoint's archive.
    #[prost(string, tag = "1")]
    pub image: String,
}

/// A variable of the environment.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A directory or file of the host in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Mount {
    /// Where the container sees it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the host has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether it cannot be written to.
    #[prost(bool, tag = "3")]
    pub readonly: bool,
}

/// A device of the host in a container.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// Where the container sees it.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Where the host has it.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Of r, w and m.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// What a container is to be.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerConfig {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    /// Its image.
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    /// Its program and the arguments.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    /// Its environment, beside the image's.
    #[prost(message, repeated, tag = "6")]
    pub envs: Vec<KeyValue>,
    /// What of the host it sees.
    #[prost(message, repeated, tag = "7")]
    pub mounts: Vec<Mount>,
    /// Its devices.
    #[prost(message, repeated, tag = "8")]
    pub devices: Vec<Device>,
    /// Its log, in the pod's directory of logs.
    #[prost(string, tag = "11")]
    pub log_path: String,
    /// What Linux makes of it.
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainerConfig>,
}

/// A container's settings on Linux.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LinuxContainerConfig {
    /// Its limits.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<LinuxContainerResources>,
    /// Its namespaces.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxContainerSecurityContext>,
}

/// A container's limits.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LinuxContainerResources {
    /// Bytes of memory.
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
}

/// Holds a container's namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LinuxContainerSecurityContext {
    /// The namespaces.
    #[prost(message, optional, tag = "3")]
    pub namespace_options: Option<NamespaceOption>,
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
    /// Nobody knows.
    Unknown = 3,
}

/// What CRI says of a container.
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
    /// The same in more words.
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

/// How a command in a container ended, and what it wrote.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Executed {
    /// To standard output.
    #[prost(bytes = "vec", tag = "1")]
    pub stdout: Vec<u8>,
    /// To standard error.
    #[prost(bytes = "vec", tag = "2")]
    pub stderr: Vec<u8>,
    /// Its exit code.
    #[prost(int32, tag = "3")]
    pub exit_code: i32,
}

/// What a container uses.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ContainerStats {
    /// Of the processors.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<CpuUsage>,
    /// Of memory.
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
}

/// An answer that says no more than that it is done.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Done {}
