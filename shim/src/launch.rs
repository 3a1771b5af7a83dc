//! `start`: finds or starts the shim that serves a container, and tells containerd where it is.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use containerd_shim::api::Options;
use containerd_shim::cgroup::set_cgroup_and_oom_score;
use containerd_shim::{Flags, StartOpts};
use rustix::process::getpid;
use rustix::thread::{CoreSchedulingScope, create_core_scheduling_cookie};

use crate::bootstrap::Call;
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::serve::TTRPC_ADDRESS;

/// Set by containerd when the administrator wants the shim and its containers on cores of their own.
const SCHED_CORE: &str = "SCHED_CORE";
/// Where the address is kept for containerd 1.6, which reads it back after a restart.
const ADDRESS: &str = "address";

/// Does what `start` has to do; the bundle is the working directory.
pub(crate) fn launch(flags: &Flags) -> Result<()> {
    let call = Call::read(flags)?;
    let bundle = std::env::current_dir().map_err(Error::io("find the bundle"))?;
    let group = Bundle::new(bundle).group(&call.options.id)?;
    let address = call.options.socket_address(&group);
    fs::write(ADDRESS, &address).map_err(Error::io("write the file address"))?;
    if let Some(socket) = listen(&address)? {
        let child = spawn(flags, &call.options, socket);
        if let Err(error) = child.and_then(|child| confine(&call.options, child)) {
            let _ = fs::remove_file(path_of(&address));
            return Err(error);
        }
    }
    answer(&call.reply.encode(&address)?)
}

fn answer(reply: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(reply)
        .and_then(|()| stdout.flush())
        .map_err(Error::io("answer containerd"))
}

fn path_of(address: &str) -> PathBuf {
    PathBuf::from(address.trim_start_matches("unix://"))
}

/// The socket of a shim that is to be started; `None` if one serves the group already.
fn listen(address: &str) -> Result<Option<UnixListener>> {
    let path = path_of(address);
    let failed = || Error::io(format!("listen at {}", path.display()));
    if let Some(directory) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o711).create(directory);
        made.map_err(failed())?;
    }
    match bind(&path) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(&path).is_ok() {
                return Ok(None);
            }
            // Left by a shim that was killed.
            fs::remove_file(&path).map_err(failed())?;
            bind(&path).map(Some).map_err(failed())
        }
        Err(error) => Err(failed()(error)),
    }
}

/// Removes the socket of a shim that was killed; the shim's address is kept in a bundle.
pub(crate) fn remove_dead_socket(bundle: &Path) {
    let Ok(address) = fs::read_to_string(bundle.join(ADDRESS)) else {
        return;
    };
    let path = path_of(address.trim());
    // In a pod, another container may have been given a new shim meanwhile.
    if UnixStream::connect(&path).is_err() {
        let _ = fs::remove_file(&path);
    }
}

/// Only root may talk to a shim.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Starts the shim. It finds its socket as standard input, so containerd can connect before the
/// shim has begun to serve, and nobody waits for anybody.
fn spawn(flags: &Flags, options: &StartOpts, socket: UnixListener) -> Result<Child> {
    if std::env::var_os(SCHED_CORE).is_some_and(|wanted| !wanted.is_empty()) {
        create_core_scheduling_cookie(getpid(), CoreSchedulingScope::ProcessGroup)
            .map_err(Error::io("make a core scheduling cookie"))?;
    }
    let own = std::env::current_exe().map_err(Error::io("find this program"))?;
    let mut command = Command::new(own);
    command.args(["-namespace", &options.namespace, "-id", &options.id]);
    command.args(["-address", &options.address]);
    if flags.debug || options.debug {
        command.arg("-debug");
    }
    command.env(TTRPC_ADDRESS, &options.ttrpc_address);
    command.stdin(OwnedFd::from(socket));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0);
    command.spawn().map_err(Error::io("start the shim"))
}

/// Puts the shim into the cgroup that the options name, and makes it a better victim of a lack of
/// memory than containerd.
fn confine(options: &StartOpts, mut child: Child) -> Result<()> {
    let runtime_options = options.extension::<Options>();
    let confined = runtime_options.and_then(|options| {
        let cgroup = options.map(|options| options.shim_cgroup);
        set_cgroup_and_oom_score(child.id(), &cgroup.unwrap_or_default())
    });
    confined.map_err(|error| {
        // It has done nothing yet; a shim outside its cgroup must not begin.
        let _ = child.kill();
        let _ = child.wait();
        Error::Invalid(format!("cannot confine the shim: {error}"))
    })
}
