//! Requests and answers of CRI (`runtime.v1`), with the fields that tests use.

use std::collections::HashMap;

use super::container_config::{ContainerConfig, ImageSpec};
use super::pod_config::PodSandboxConfig;

messages! {
    pub(super) struct RunPodSandbox {
        config: Option<PodSandboxConfig> = 1 (message, optional),
        runtime_handler: String = 2 (string),
    }

    /// A request about a pod or a container by its id alone, or an answer that gives the id.
    pub(super) struct Id {
        id: String = 1 (string),
    }

    /// A request for the status of a pod or a container.
    pub(super) struct StatusOf {
        id: String = 1 (string),
        verbose: bool = 2 (bool),
    }

    /// The answer about a pod; only the part that comes with `verbose`.
    pub(super) struct PodStatus {
        info: HashMap<String, String> = 2 (map = "string, string"),
    }

    pub(super) struct CreateContainer {
        pod_sandbox_id: String = 1 (string),
        config: Option<ContainerConfig> = 2 (message, optional),
        sandbox_config: Option<PodSandboxConfig> = 3 (message, optional),
    }

    pub(super) struct StopContainer {
        container_id: String = 1 (string),
        timeout: i64 = 2 (int64),
    }
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

messages! {
    /// The status of a container.
    pub struct ContainerStatus {
        /// Its state.
        state: i32 = 3 (enumeration = "ContainerState"),
        /// The nanosecond of its end.
        finished_at: i64 = 6 (int64),
        /// Its exit code.
        exit_code: i32 = 7 (int32),
        /// Why it is in its state, in a word.
        reason: String = 10 (string),
        /// The reason in more words.
        message: String = 11 (string),
    }

    pub(super) struct ContainerStatusAnswer {
        status: Option<ContainerStatus> = 1 (message, optional),
        info: HashMap<String, String> = 2 (map = "string, string"),
    }

    pub(super) struct ExecSync {
        container_id: String = 1 (string),
        cmd: Vec<String> = 2 (string, repeated),
        timeout: i64 = 3 (int64),
    }

    /// The result of a command in a container, and its output.
    pub struct Executed {
        /// Its standard output.
        stdout: Vec<u8> = 1 (bytes = "vec"),
        /// Its standard error.
        stderr: Vec<u8> = 2 (bytes = "vec"),
        /// Its exit code.
        exit_code: i32 = 3 (int32),
    }

    /// The resource usage of a container.
    pub struct ContainerStats {
        /// Its processor time.
        cpu: Option<CpuUsage> = 2 (message, optional),
        /// Its memory.
        memory: Option<MemoryUsage> = 3 (message, optional),
    }

    /// Processor time.
    pub struct CpuUsage {
        /// Nanoseconds on all processors.
        usage_core_nano_seconds: Option<Number> = 2 (message, optional),
    }

    /// Memory.
    pub struct MemoryUsage {
        /// Bytes without those that the kernel could take back at once.
        working_set_bytes: Option<Number> = 2 (message, optional),
        /// All bytes.
        usage_bytes: Option<Number> = 4 (message, optional),
    }

    /// A number that may be missing.
    pub struct Number {
        /// The number.
        value: u64 = 1 (uint64),
    }

    pub(super) struct ContainerStatsAnswer {
        stats: Option<ContainerStats> = 1 (message, optional),
    }

    pub(super) struct CheckpointContainer {
        container_id: String = 1 (string),
        location: String = 2 (string),
        timeout: i64 = 3 (int64),
    }

    pub(super) struct PullImage {
        image: Option<ImageSpec> = 1 (message, optional),
        auth: Option<Auth> = 2 (message, optional),
    }

    /// What a pod's `imagePullSecrets` say about a registry.
    pub(super) struct Auth {
        username: String = 1 (string),
        password: String = 2 (string),
    }

    /// An answer without content.
    pub(super) struct Done {}
}
