//! The containerd shim of stasis: containerd's task service over runc or crun, with checkpoint and
//! restore of GPU containers through `stasis-runtime`. It contains no CUDA code.
//!
//! containerd starts this program with one of four commands ([`command`]): `start`
//! ([`command::start`]) finds or starts the shim of a container, `delete` ([`command::delete`])
//! cleans up after one that was killed, `-info` ([`command::info`]) describes the runtime, and `-v`
//! prints the version. `start` starts the program once more, as the shim itself
//! ([`command::serve`]).
//!
//! The shim answers containerd's task service over ttrpc ([`service`]). Its verbs are the files of
//! [`task`]:
//!
//! | ttrpc | |
//! | --- | --- |
//! | Create | [`task::create`] |
//! | Start, of a task or from its checkpoint | [`task::start`] |
//! | Exec, and Start of such a process | [`task::exec`] |
//! | Kill | [`task::kill`] |
//! | Pause, Resume | [`task::pause`] |
//! | Update | [`task::update`] |
//! | Checkpoint | [`task::checkpoint`] |
//! | Pids | [`task::pids`] |
//! | Delete | [`task::delete`] |
//! | the events TaskExit and TaskOOM | [`task::exit`], [`task::oom`] |
//! | Stats | [`cgroup::stats`] |
//! | ResizePty, CloseIO | [`stdio`] |
//! | State, Wait, Connect, Shutdown | [`service`] |
//!
//! Below them: [`runtime`] calls runc, crun and `stasis-runtime`; [`child`] starts programs and
//! waits for them; [`bundle`] mounts the root file system; [`cgroup`] counts and kills; [`stdio`]
//! carries the streams; [`containerd`] publishes events.

#![forbid(unsafe_code)]

mod bundle;
mod cgroup;
mod child;
mod command;
mod containerd;
mod error;
mod run_blocking;
mod runtime;
mod service;
mod stdio;
mod task;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use containerd_shim::Flags;
use stasis_linux::error_chain;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::child::reaper::Reaper;
use crate::containerd::RUNTIME;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // containerd shows what a shim writes to standard error.
            let _ = writeln!(io::stderr(), "{RUNTIME}: {}", error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let flags = containerd_shim::parse(&arguments)?;
    if flags.version {
        let _ = writeln!(io::stdout(), "{RUNTIME} {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    if flags.info {
        return Ok(with_reaper(async |reaper| {
            command::info::info(reaper).await
        })??);
    }
    match flags.action.as_str() {
        "start" => Ok(command::start::start(&flags)?),
        "delete" => Ok(with_reaper(async |reaper| {
            command::delete::delete(&flags, reaper).await
        })??),
        "hold-user-namespace" => Ok(bundle::rootfs::hold_user_namespace()?),
        "" => Ok(serve_on_this_thread(&flags)?),
        other => {
            Err(format!("unknown action {other:?}: this program is started by containerd").into())
        }
    }
}

/// How long a thread for what may hang ([`run_blocking`]) waits for more: a node has hundreds of
/// shims.
const IDLE: Duration = Duration::from_secs(1);

/// Serves on one thread. Other processes do what takes long, and programs must be started by a
/// thread that lives as long as the shim ([`child::spawn`]).
fn serve_on_this_thread(flags: &Flags) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(IDLE)
        .build()?;
    let served = runtime.block_on(command::serve::serve(flags));
    // Not waiting for a mount that hangs.
    runtime.shutdown_background();
    served
}

/// Runs a command that starts programs, and reaps them.
fn with_reaper<T>(command: impl AsyncFnOnce(&Arc<Reaper>) -> T) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let reaper = Arc::new(Reaper::default());
        let mut child_ended = signal(SignalKind::child())?;
        let command = command(&reaper);
        let mut command = std::pin::pin!(command);
        loop {
            tokio::select! {
                result = &mut command => return Ok(result),
                _ = child_ended.recv() => reaper.reap(),
            }
        }
    })
}
