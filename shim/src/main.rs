//! The containerd shim of stasis: containerd's task service over runc or crun, with checkpoint and
//! restore of GPU containers through `stasis-runtime`. It contains no CUDA code.
//!
//! containerd starts this program in four ways (runtime/v2/README.md): `start` and `delete`, `-info`
//! and `-v`; `start` starts it in a fifth, in which it serves.

mod add;
mod bootstrap;
mod bundle;
mod call;
mod cgroup;
mod checkpoint;
mod cleanup;
mod command;
mod controllers;
mod create;
mod delete;
mod ending;
mod engine;
mod error;
mod events;
mod exec;
mod freeze;
mod info;
mod launch;
mod memory;
mod messages;
mod mount_table;
mod oci_runtime;
mod oom;
mod operation;
mod options;
mod pids;
mod reaper;
mod remains;
mod runtime_log;
mod serve;
mod service;
mod signal;
mod start;
mod state;
mod stats;
mod stdio;
mod task;
mod timestamp;
mod update;

use std::env;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use containerd_shim::Flags;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::reaper::Reaper;

/// The name under which containerd finds this program.
pub(crate) const RUNTIME: &str = "io.containerd.stasis.v2";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // containerd shows what a shim writes to standard error.
            eprintln!("{RUNTIME}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let flags = containerd_shim::parse(&arguments)?;
    if flags.version {
        println!("{RUNTIME} {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    if flags.info {
        return Ok(with_reaper(async |reaper| info::info(reaper).await)??);
    }
    match flags.action.as_str() {
        "start" => Ok(launch::launch(&flags)?),
        "delete" => Ok(with_reaper(async |reaper| {
            cleanup::cleanup(&flags, reaper).await
        })??),
        "" => Ok(serve_on_this_thread(&flags)?),
        other => {
            Err(format!("unknown action {other:?}: this program is started by containerd").into())
        }
    }
}

/// One thread: what takes long is done by other processes, and programs are started by the thread
/// that lives as long as the shim (`command.rs`).
fn serve_on_this_thread(flags: &Flags) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve::serve(flags))
}

/// Runs something that starts programs.
fn with_reaper<T>(act: impl AsyncFnOnce(&Arc<Reaper>) -> T) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let reaper = Arc::new(Reaper::default());
        let mut ended = signal(SignalKind::child())?;
        let act = act(&reaper);
        let mut act = std::pin::pin!(act);
        loop {
            tokio::select! {
                result = &mut act => return Ok(result),
                _ = ended.recv() => reaper.reap(),
            }
        }
    })
}
