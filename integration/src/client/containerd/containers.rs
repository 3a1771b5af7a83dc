//! The calls of containerd's service for containers, which are records that a task is made from.

use containerd_client::services::v1 as api;
use serde_json::Value;

use super::{Answer, Containerd, Status, messages, of};

impl Containerd {
    /// Makes a container with this specification.
    pub fn add_container(&self, id: &str, runtime: &str, spec: &Value) -> Answer<()> {
        let container = api::Container {
            id: id.to_owned(),
            runtime: Some(api::container::Runtime {
                name: runtime.to_owned(),
                options: None,
            }),
            spec: Some(messages::specification("Spec", spec)),
            ..Default::default()
        };
        let request = api::CreateContainerRequest {
            container: Some(container),
        };
        let mut containers = self.containers();
        self.runtime
            .block_on(containers.create(of(request)))
            .map(drop)
    }

    /// Has a container's next task begun in this cgroup, which `ctr containers create` cannot do.
    pub fn put_into_cgroup(&self, id: &str, cgroup: &str) -> Answer<()> {
        let request = api::GetContainerRequest { id: id.to_owned() };
        let mut containers = self.containers();
        let answer = self.runtime.block_on(containers.get(of(request)))?;
        let missing = || Status::internal("a container without a specification");
        let mut container = answer.into_inner().container.ok_or_else(missing)?;
        let spec = container.spec.as_mut().ok_or_else(missing)?;
        let mut value: Value = serde_json::from_slice(&spec.value)
            .map_err(|error| Status::internal(error.to_string()))?;
        value["linux"]["cgroupsPath"] = cgroup.into();
        spec.value = value.to_string().into_bytes();
        let request = api::UpdateContainerRequest {
            container: Some(container),
            update_mask: None,
        };
        self.runtime
            .block_on(containers.update(of(request)))
            .map(drop)
    }

    /// Removes a container that has no task.
    pub fn remove_container(&self, id: &str) -> Answer<()> {
        let request = api::DeleteContainerRequest { id: id.to_owned() };
        let mut containers = self.containers();
        self.runtime
            .block_on(containers.delete(of(request)))
            .map(drop)
    }

    fn containers(&self) -> api::containers_client::ContainersClient<super::Channel> {
        api::containers_client::ContainersClient::new(self.channel.clone())
    }
}
