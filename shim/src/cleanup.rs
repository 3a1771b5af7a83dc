//! `delete`: what containerd starts when a shim has gone without a word. The container ends with it;
//! nothing of it may stay. containerd waits 5 seconds.

use std::io::{self, Write};
use std::sync::Arc;

use containerd_shim::Flags;
use containerd_shim::api::DeleteResponse;
use containerd_shim::protos::protobuf::Message;

use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::launch;
use crate::oci_runtime::OciRuntime;
use crate::options;
use crate::reaper::{Exit, Reaper};
use crate::remains::Remains;
use crate::timestamp;

/// Removes the container whose bundle is beside the working directory, which is a bundle itself.
pub(crate) async fn cleanup(flags: &Flags, reaper: &Arc<Reaper>) -> Result<()> {
    let own = std::env::current_dir().map_err(Error::io("find the bundle"))?;
    // In a pod, containerd starts this in the bundle of the container that the shim was started for.
    let path = own.parent().map_or(own.clone(), |all| all.join(&flags.id));
    let bundle = Bundle::new(path);
    let removed = remove(flags, &bundle, reaper).await;
    launch::remove_dead_socket(bundle.path());
    bundle.unmount()?;
    removed?;
    answer(&bundle)
}

/// Whatever fails, the rest is tried.
async fn remove(flags: &Flags, bundle: &Bundle, reaper: &Arc<Reaper>) -> Result<()> {
    let remains = Remains::of(bundle, &flags.id);
    if let Ok(remains) = &remains {
        // First, so that a restore that is under way fails now: the engine is not to wait for it.
        remains.kill();
    }
    let deleted = delete(flags, bundle, reaper).await;
    remains?.remove();
    deleted
}

async fn delete(flags: &Flags, bundle: &Bundle, reaper: &Arc<Reaper>) -> Result<()> {
    let options = options::read(bundle.path())?;
    let runtime = OciRuntime::find(options, bundle, &flags.namespace, reaper)?;
    // An operation may be under way, which the engine ends.
    let deleted = runtime.delete_by_force(&flags.id).await;
    Ok(runtime.unless_gone(&flags.id, deleted)?)
}

fn answer(bundle: &Bundle) -> Result<()> {
    let killed = Exit::killed();
    let response = DeleteResponse {
        pid: Bundle::read_pid(&bundle.init_pid_file()).unwrap_or_default(),
        exit_status: killed.status,
        exited_at: timestamp::field(killed.at),
        ..DeleteResponse::default()
    };
    let bytes = response
        .write_to_bytes()
        .map_err(|error| Error::Invalid(format!("cannot encode the answer: {error}")))?;
    io::stdout()
        .write_all(&bytes)
        .map_err(Error::io("answer containerd"))
}
