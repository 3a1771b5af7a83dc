//! A host as a node of Kubernetes has it: containerd with CRI, and a registry to pull from.

use anyhow::Result;

use super::{Cri, settings};
use crate::client::shim::Shim;
use crate::host::installed::StasisHost;
use crate::host::registry::Registry;
use crate::host::{Daemon, HostKind, Suite};

const OUR_SHIM: &str = "/usr/local/bin/containerd-shim-stasis-v2";
/// The last option that the shipped settings suggest.
const LAST_OPTION: &str = "#CriuWorkPath = \"\"";
const GO_SHIM: &str = "/usr/bin/containerd-shim-runc-v2";

/// A host's containerd with CRI, and the registry that it pulls the test image from.
#[derive(Debug)]
pub struct Node<'host> {
    /// containerd.
    pub daemon: Daemon<'host>,
    _registry: Registry,
}

/// Runs checks on a node that has the test image.
///
/// Its cgroups have to be those of [`Cgroups::oldest`](crate::host::Cgroups::oldest): CRI sets a
/// share of the processor for every pod, and version 2 has no controller for it on a machine that
/// also has version 1.
pub fn on_a_node(kind: HostKind, checks: &[fn(&StasisHost, &Cri) -> Result<()>]) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    let node = stasis.node(kind.suite)?;
    let cri = Cri::connect(&stasis.host)?;
    cri.pull()?;
    for check in checks {
        let checked = check(&stasis, &cri);
        checked.inspect_err(|_| println!("{}", node.daemon.log().unwrap_or_default()))?;
    }
    Ok(())
}

impl StasisHost {
    /// Starts containerd with the shipped settings for CRI and the shim under test where they name
    /// it.
    pub fn node(&self, suite: Suite) -> Result<Node<'_>> {
        self.node_with(suite, LAST_OPTION)
    }

    /// Starts containerd with another option of the runtime.
    pub fn node_with(&self, suite: Suite, option: &str) -> Result<Node<'_>> {
        let shipped = settings::shipped(suite).replace(LAST_OPTION, option);
        let snippet = match Shim::under_test() {
            Shim::Stasis => shipped,
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
