//! Pids: lists a task's processes.

use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::protobuf::well_known_types::any::Any;
use containerd_shim::protos::shim::oci::ProcessDetails;
use containerd_shim::protos::types::task::ProcessInfo;
use containerd_shim::util::convert_to_any;

use crate::error::Result;
use crate::task::Task;

impl Task {
    /// Its processes, with the ids of those that Exec added.
    pub(crate) async fn pids(&self) -> Result<Vec<ProcessInfo>> {
        let pids = self.runtime.pids(&self.id).await?;
        let execs: Vec<_> = self.record().execs.values().cloned().collect();
        let info = |pid| ProcessInfo {
            pid,
            info: MessageField::from_option(
                execs
                    .iter()
                    .find(|exec| exec.running_pid() == Some(pid))
                    .and_then(|exec| details(&exec.id)),
            ),
            ..ProcessInfo::default()
        };
        Ok(pids.into_iter().map(info).collect())
    }
}

fn details(exec_id: &str) -> Option<Any> {
    convert_to_any(Box::new(ProcessDetails {
        exec_id: exec_id.to_owned(),
        ..ProcessDetails::default()
    }))
    .ok()
}
