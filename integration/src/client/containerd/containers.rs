//! The calls of containerd's service for containers, which are records that a task is made from.

use containerd_client::services::v1 as api;
use serde_json::Value;

use super::{Answer, Containerd, messages, of};

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
