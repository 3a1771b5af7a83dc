//! Messages that travel inside others: options of the runtime, specifications, metrics.

use anyhow::{Result, bail};
use containerd_shim_protos::cgroups::metrics::Metrics as MetricsV1;
pub use containerd_shim_protos::cgroups_v2::metrics::Metrics as MetricsV2;
use containerd_shim_protos::protobuf::{Message, MessageFull};
use containerd_shim_protos::shim::oci::ProcessDetails;
pub use containerd_shim_protos::shim::oci::{CheckpointOptions, Options as RuntimeOptions};
use prost_types::Any;
use serde_json::{Value, json};

use super::{Answer, Status};

/// An options message as a request carries it.
pub fn to_any<M: MessageFull>(message: &M) -> Answer<Any> {
    let name = M::descriptor().full_name().to_owned();
    let bytes = message.write_to_bytes();
    let bytes = bytes.map_err(|error| Status::internal(error.to_string()))?;
    Ok(any(&name, bytes))
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

/// Packs a value in JSON under the type name that containerd uses for it.
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

pub(super) fn exec_of(info: Option<Any>) -> Option<String> {
    let info = info.filter(|info| info.type_url == "containerd.runc.v1.ProcessDetails")?;
    Some(ProcessDetails::parse_from_bytes(&info.value).ok()?.exec_id)
}

/// The resource usage of a task, out of the metrics of either version of cgroups.
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
        let type_url = data.type_url.clone();
        match type_url.as_str() {
            "io.containerd.cgroups.v1.Metrics" => {
                let metrics = MetricsV1::parse_from_bytes(&data.value)?;
                let cpu = metrics.cpu.as_ref().and_then(|cpu| cpu.usage.as_ref());
                let memory = metrics.memory.as_ref();
                let memory = memory.and_then(|memory| memory.usage.as_ref());
                Ok(Self {
                    type_url,
                    pids: metrics.pids.as_ref().map(|pids| pids.current),
                    cpu: cpu.map(|usage| usage.total),
                    memory: memory.map(|memory| memory.usage),
                    memory_limit: memory.map(|memory| memory.limit),
                })
            }
            "io.containerd.cgroups.v2.Metrics" => {
                let metrics = MetricsV2::parse_from_bytes(&data.value)?;
                let memory = metrics.memory.as_ref();
                Ok(Self {
                    type_url,
                    pids: metrics.pids.as_ref().map(|pids| pids.current),
                    cpu: metrics.cpu.as_ref().map(|cpu| cpu.usage_usec * 1000),
                    memory: memory.map(|memory| memory.usage),
                    memory_limit: memory.map(|memory| memory.usage_limit),
                })
            }
            other => bail!("metrics of the unknown type {other:?}"),
        }
    }
}
