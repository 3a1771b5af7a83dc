//! The network that a restore makes for a container.
//!
//! runc has CRIU leave the contents of such a network out of the image (`CLONE_NEWNET` in
//! `empty_ns`), and brings its loopback device up at a create alone. So a script of CRIU's does it
//! here (`post_dump.rs`), as soon as the network is there: before the sockets, which need
//! an address to be bound to, and long before anything runs. crun has CRIU dump and restore it.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use stasis_config::Flavor;
use stasis_linux::process::network::{bring_loopback_up, in_network, network_of};

use crate::container::spec::Spec;
use crate::low_level::post_dump;

const SCRIPT: &str = "criu-new-network";
const CONFIGURATION: &str = "criu-restore.conf";

/// Writes CRIU's configuration file for the restore of a container; `None` if it needs none.
pub(super) fn prepare(
    state_dir: &Path,
    flavor: Flavor,
    bundle: &Path,
) -> io::Result<Option<PathBuf>> {
    // The low-level runtime reports a specification that cannot be read.
    let is_new = |spec: Spec| spec.has_own_namespace("network");
    let is_new = flavor == Flavor::Runc && Spec::read(bundle).is_ok_and(is_new);
    if !is_new {
        return Ok(None);
    }
    let program = env::current_exe()?;
    post_dump::write(state_dir, &program, (SCRIPT, CONFIGURATION))
}

/// The restore whose network this process was started to set up.
#[derive(Debug)]
pub struct NewNetwork {
    /// Its first process; `None` at any other moment of the restore.
    first: Option<i32>,
}

impl NewNetwork {
    /// What CRIU started this process for, if CRIU did.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        let name = env::args_os().next()?;
        if Path::new(&name).file_name()? != SCRIPT {
            return None;
        }
        let moment = env::var_os("CRTOOLS_SCRIPT_ACTION")?;
        let first = || env::var("CRTOOLS_INIT_PID").ok()?.parse().ok();
        Some(Self {
            first: first().filter(|_| moment == "post-setup-namespaces"),
        })
    }

    /// Brings the loopback device up.
    pub fn set_up(&self) -> io::Result<()> {
        let network = self.first.map_or(Ok(None), network_of)?;
        match network {
            Some(network) => in_network(network.as_fd(), bring_loopback_up),
            None => Ok(()),
        }
    }
}
