//! `start`: finds or starts the shim that serves a container, and answers with its address.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use containerd_shim::api::Options;
use containerd_shim::cgroup::set_cgroup_and_oom_score;
use containerd_shim::{Flags, StartOpts};
use rustix::process::getpid;
use rustix::thread::{CoreSchedulingScope, create_core_scheduling_cookie};

use crate::bundle::Bundle;
use crate::child::environment;
use crate::command::bootstrap::StartRequest;
use crate::command::serve::TTRPC_ADDRESS;
use crate::command::{answer, socket};
use crate::error::{Error, Result};

/// containerd sets this if the administrator wants the shim and its containers on cores of their
/// own.
const SCHED_CORE: &str = "SCHED_CORE";

/// Starts the shim of the container whose bundle is the working directory, unless one serves its
/// group already.
pub(crate) fn start(flags: &Flags) -> Result<()> {
    let request = StartRequest::read(flags)?;
    let bundle = std::env::current_dir().map_err(Error::cannot("find the bundle"))?;
    let bundle = Bundle::new(bundle);
    let group = bundle.group(&request.options.id)?;
    if let Ok(Some(options)) = request.options.extension::<Options>() {
        bundle.keep_image_of_all(&options.criu_image_path)?;
    }
    let address = request.options.socket_address(&group);
    socket::write_address(&address)?;
    if let Some(listener) = socket::listen(&address)? {
        let child = spawn(flags, &request.options, listener);
        if let Err(error) = child.and_then(|child| confine(&request.options, child)) {
            socket::remove(&address);
            return Err(error);
        }
    }
    answer::write(&request.reply.encode(&address)?)
}

/// Starts the shim with its socket as standard input: so containerd can connect before the shim
/// serves, and neither waits for the other.
fn spawn(flags: &Flags, options: &StartOpts, socket: UnixListener) -> Result<Child> {
    if std::env::var_os(SCHED_CORE).is_some_and(|wanted| !wanted.is_empty()) {
        create_core_scheduling_cookie(getpid(), CoreSchedulingScope::ProcessGroup)
            .map_err(Error::cannot("make a core scheduling cookie"))?;
    }
    let own = std::env::current_exe().map_err(Error::cannot("find this program"))?;
    let mut command = Command::new(own);
    command.args(["-namespace", &options.namespace, "-id", &options.id]);
    command.args(["-address", &options.address]);
    if flags.debug || options.debug {
        command.arg("-debug");
    }
    environment::make(&mut command);
    command.env(TTRPC_ADDRESS, &options.ttrpc_address);
    command.stdin(OwnedFd::from(socket));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0);
    command.spawn().map_err(Error::cannot("start the shim"))
}

/// Puts the shim into the cgroup that the options name, and gives it an OOM score so that the
/// kernel kills it before containerd.
fn confine(options: &StartOpts, mut child: Child) -> Result<()> {
    let runtime_options = options.extension::<Options>();
    let confined = runtime_options.and_then(|options| {
        let cgroup = options.map(|options| options.shim_cgroup);
        set_cgroup_and_oom_score(child.id(), &cgroup.unwrap_or_default())
    });
    confined.map_err(|error| {
        // A shim outside its cgroup must not serve; it has done nothing yet.
        let _ = child.kill();
        let _ = child.wait();
        Error::Other(format!("cannot confine the shim: {error}"))
    })
}
