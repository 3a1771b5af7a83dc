//! Messages that travel inside others: options of the runtime, specifications, metrics.

use anyhow::{Result, bail};
use prost::Message;
use prost_types::Any;
use serde_json::{Value, json};

/// `containerd.runc.v1.Options`: what a container's runtime is told when a task is created.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RuntimeOptions {
    /// Use `MS_MOVE` instead of `pivot_root`.
    #[prost(bool, tag = "1")]
    pub no_pivot_root: bool,
    /// Give the container no keyring of its own.
    #[prost(bool, tag = "2")]
    pub no_new_keyring: bool,
    /// The cgroup to put the shim into.
    #[prost(string, tag = "3")]
    pub shim_cgroup: String,
    /// The owner of the pipes of the standard streams.
    #[prost(uint32, tag = "4")]
    pub io_uid: u32,
    /// The group of the pipes of the standard streams.
    #[prost(uint32, tag = "5")]
    pub io_gid: u32,
    /// The runtime's program.
    #[prost(string, tag = "6")]
    pub binary_name: String,
    /// The runtime's directory of state.
    #[prost(string, tag = "7")]
    pub root: String,
    /// Let systemd make the cgroups.
    #[prost(bool, tag = "9")]
    pub systemd_cgroup: bool,
    /// The directory of the checkpoint that the task is restored from.
    #[prost(string, tag = "10")]
    pub criu_image_path: String,
    /// CRIU's working directory.
    #[prost(string, tag = "11")]
    pub criu_work_path: String,
    /// The address of a task service that runs already.
    #[prost(string, tag = "12")]
    pub task_api_address: String,
    /// The version of that task service.
    #[prost(uint32, tag = "13")]
    pub task_api_version: u32,
}

/// `containerd.runc.v1.CheckpointOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CheckpointOptions {
    /// End the container after its checkpoint.
    #[prost(bool, tag = "1")]
    pub exit: bool,
    /// Dump established TCP connections.
    #[prost(bool, tag = "2")]
    pub open_tcp: bool,
    /// Dump connections to unix sockets outside.
    #[prost(bool, tag = "3")]
    pub external_unix_sockets: bool,
    /// Dump terminals.
    #[prost(bool, tag = "4")]
    pub terminal: bool,
    /// Dump file locks.
    #[prost(bool, tag = "5")]
    pub file_locks: bool,
    /// Namespaces that are not dumped.
    #[prost(string, repeated, tag = "6")]
    pub empty_namespaces: Vec<String>,
    /// How CRIU deals with cgroups: soft, full or strict.
    #[prost(string, tag = "7")]
    pub cgroups_mode: String,
    /// The directory of the checkpoint.
    #[prost(string, tag = "8")]
    pub image_path: String,
    /// CRIU's working directory.
    #[prost(string, tag = "9")]
    pub work_path: String,
}

impl RuntimeOptions {
    /// As a request carries them.
    #[must_use]
    pub fn to_any(&self) -> Any {
        any("containerd.runc.v1.Options", self.encode_to_vec())
    }
}

impl CheckpointOptions {
    /// As a request carries them.
    #[must_use]
    pub fn to_any(&self) -> Any {
        any("containerd.runc.v1.CheckpointOptions", self.encode_to_vec())
    }
}

/// The specification of an exec process.
#[must_use]
pub fn process(arguments: &[&str], terminal: bool) -> Any {
    let process = json!({
        "args": arguments,
        "cwd": "/",
        "env": ["PATH=/bin", "TERM=xterm"],
        "terminal": terminal,
        "user": { "uid": 0, "gid": 0 },
    });
    specification("Process", &process)
}

/// New limits of a task.
#[derive(Debug, Clone)]
pub struct Resources(pub Value);

impl Resources {
    pub(super) fn to_any(&self) -> Any {
        specification("LinuxResources", &self.0)
    }
}

/// What containerd writes in JSON has these names.
pub(super) fn specification(name: &str, value: &Value) -> Any {
    let name = format!("types.containerd.io/opencontainers/runtime-spec/1/{name}");
    any(&name, value.to_string().into_bytes())
}

fn any(name: &str, value: Vec<u8>) -> Any {
    Any {
        type_url: name.to_owned(),
        value,
    }
}

/// `containerd.runc.v1.ProcessDetails`: tells an exec process in a list of pids.
#[derive(Clone, PartialEq, Eq, Message)]
struct ProcessDetails {
    #[prost(string, tag = "1")]
    exec_id: String,
}

pub(super) fn exec_of(info: Option<Any>) -> Option<String> {
    let info = info.filter(|info| info.type_url == "containerd.runc.v1.ProcessDetails")?;
    Some(ProcessDetails::decode(info.value.as_slice()).ok()?.exec_id)
}

/// What a task uses, out of the metrics of either version of cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The type of the metrics.
    pub type_url: String,
    /// Processes and threads, if that is counted.
    pub pids: Option<u64>,
    /// Nanoseconds of processor time, if that is counted.
    pub cpu: Option<u64>,
    /// Bytes of memory, if that is counted.
    pub memory: Option<u64>,
    /// The limit of memory, if that is counted.
    pub memory_limit: Option<u64>,
}

impl Usage {
    pub(super) fn decode(data: &Any) -> Result<Self> {
        let bytes = data.value.as_slice();
        let type_url = data.type_url.clone();
        match type_url.as_str() {
            "io.containerd.cgroups.v1.Metrics" => {
                let metrics = v1::Metrics::decode(bytes)?;
                let memory = metrics.memory.and_then(|memory| memory.usage);
                Ok(Self {
                    type_url,
                    pids: metrics.pids.map(|pids| pids.current),
                    cpu: metrics
                        .cpu
                        .and_then(|cpu| cpu.usage)
                        .map(|usage| usage.total),
                    memory: memory.map(|memory| memory.usage),
                    memory_limit: memory.map(|memory| memory.limit),
                })
            }
            "io.containerd.cgroups.v2.Metrics" => {
                let metrics = v2::Metrics::decode(bytes)?;
                Ok(Self {
                    type_url,
                    pids: metrics.pids.map(|pids| pids.current),
                    cpu: metrics.cpu.map(|cpu| cpu.usage_usec * 1000),
                    memory: metrics.memory.map(|memory| memory.usage),
                    memory_limit: metrics.memory.map(|memory| memory.usage_limit),
                })
            }
            other => bail!("metrics of the unknown type {other:?}"),
        }
    }
}

/// The parts of `io.containerd.cgroups.v1.Metrics` that tests look at.
mod v1 {
    use prost::Message;

    #[derive(Clone, PartialEq, Eq, Message)]
    pub(super) struct Metrics {
        #[prost(message, optional, tag = "2")]
        pub(super) pids: Option<super::Pids>,
        #[prost(message, optional, tag = "3")]
        pub(super) cpu: Option<Cpu>,
        #[prost(message, optional, tag = "4")]
        pub(super) memory: Option<Memory>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Cpu {
        #[prost(message, optional, tag = "1")]
        pub(super) usage: Option<CpuUsage>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct CpuUsage {
        #[prost(uint64, tag = "1")]
        pub(super) total: u64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Memory {
        #[prost(message, optional, tag = "33")]
        pub(super) usage: Option<MemoryEntry>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct MemoryEntry {
        #[prost(uint64, tag = "1")]
        pub(super) limit: u64,
        #[prost(uint64, tag = "2")]
        pub(super) usage: u64,
    }
}

/// The parts of `io.containerd.cgroups.v2.Metrics` that tests look at.
mod v2 {
    use prost::Message;

    #[derive(Clone, PartialEq, Eq, Message)]
    pub(super) struct Metrics {
        #[prost(message, optional, tag = "1")]
        pub(super) pids: Option<super::Pids>,
        #[prost(message, optional, tag = "2")]
        pub(super) cpu: Option<Cpu>,
        #[prost(message, optional, tag = "4")]
        pub(super) memory: Option<Memory>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Cpu {
        #[prost(uint64, tag = "1")]
        pub(super) usage_usec: u64,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Message)]
    pub(super) struct Memory {
        #[prost(uint64, tag = "32")]
        pub(super) usage: u64,
        #[prost(uint64, tag = "33")]
        pub(super) usage_limit: u64,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Pids {
    #[prost(uint64, tag = "1")]
    current: u64,
}
