//! A host as a node of Kubernetes has it: containerd with CRI, and a registry to pull from.

use anyhow::Result;

use super::{Cri, settings};
use crate::host::{Cgroups, Daemon, Suite};
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

/// Runs checks on a node that has the test image.
///
/// Its cgroups are those of [`Cgroups::oldest`]: CRI insists on a share of the processor for every pod,
/// which version 2 has no controller for on a machine that also has version 1.
///
/// # Errors
/// Whatever a check found.
pub fn on_a_node(suite: Suite, checks: &[fn(&Lab, &Cri) -> Result<()>]) -> Result<()> {
    let lab = Lab::start(suite, Cgroups::oldest()?, "runc")?;
    let node = lab.node(suite)?;
    let cri = Cri::connect(&lab.host)?;
    cri.pull()?;
    for check in checks {
        let checked = check(&lab, &cri);
        checked.inspect_err(|_| println!("{}", node.daemon.log().unwrap_or_default()))?;
    }
    Ok(())
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
