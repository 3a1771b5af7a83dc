//! A host as a node of Kubernetes has it: containerd with CRI, and a registry to pull from.

use anyhow::Result;

use super::settings;
use crate::host::{Daemon, Suite};
use crate::lab::Lab;
use crate::registry::Registry;
use crate::shim::Shim;

const OUR_SHIM: &str = "/usr/local/bin/containerd-shim-stasis-v2";
const GO_SHIM: &str = "/usr/bin/containerd-shim-runc-v2";

/// A host's containerd with CRI, and the registry that it pulls the test image from.
#[derive(Debug)]
pub struct Node<'lab> {
    /// containerd.
    pub daemon: Daemon<'lab>,
    _registry: Registry,
}

impl Lab {
    /// Starts containerd with the shipped settings for CRI and the shim under test where they name it.
    ///
    /// # Errors
    /// What containerd said.
    pub fn node(&self, suite: Suite) -> Result<Node<'_>> {
        let shipped = settings::shipped(suite);
        let snippet = match Shim::under_test() {
            Shim::Stasis => shipped.to_owned(),
            Shim::Go => shipped.replace(OUR_SHIM, GO_SHIM),
        };
        self.install_shim()?;
        settings::write(&self.host, suite, &snippet)?;
        Ok(Node {
            _registry: Registry::start(&self.host, &self.image)?,
            daemon: self.host.containerd()?,
        })
    }
}
