//! `delete`: cleans up after a shim that died without Shutdown. The container ends with its shim,
//! and nothing of it may stay. containerd waits 5 seconds.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use containerd_shim::Flags;
use containerd_shim::api::DeleteResponse;
use containerd_shim::protos::protobuf::{Message, MessageField};
use stasis_linux::cgroup::Everywhere;
use stasis_linux::error_chain;

use crate::bundle::Bundle;
use crate::cgroup;
use crate::child::reaper::{Exit, Reaper};
use crate::command::{answer, socket};
use crate::error::{Error, Result};
use crate::runtime::OciRuntime;
use crate::runtime::options;

/// Killed processes end within milliseconds. One in an uninterruptible wait (state D) is given up.
const ENDING: Duration = Duration::from_secs(1);

/// Removes the container whose bundle is beside the working directory, which is a bundle itself.
pub(crate) async fn delete(flags: &Flags, reaper: &Arc<Reaper>) -> Result<()> {
    let own = std::env::current_dir().map_err(Error::cannot("find the bundle"))?;
    // In a pod, containerd runs this in the bundle of the container that the shim was started for.
    let path = own.parent().map_or(own.clone(), |all| all.join(&flags.id));
    let bundle = Bundle::new(path);
    if let Err(error) = remove_container(flags, &bundle, reaper).await {
        // containerd removes the bundle only after an answer, and until then the name is taken. It
        // logs what is written here.
        let _ = writeln!(
            io::stderr(),
            "{}: something may be left: {}",
            flags.id,
            error_chain(&error)
        );
    }
    socket::remove_dead(bundle.path());
    // The one thing for which there is no answer: containerd would remove what is mounted.
    bundle.unmount()?;
    answer::write(&response(&bundle).write_to_bytes()?)
}

/// Tries every step, also after one has failed.
async fn remove_container(flags: &Flags, bundle: &Bundle, reaper: &Arc<Reaper>) -> Result<()> {
    let cgroup = find_cgroup(bundle, &flags.id);
    if let Ok(cgroup) = &cgroup {
        // Kill first: then a restore that is under way fails now, and stasis-runtime, which waits
        // for it, returns in time.
        cgroup.kill(ENDING);
    }
    let deleted = delete_by_force(flags, bundle, reaper).await;
    cgroup?.remove(ENDING);
    deleted
}

fn find_cgroup(bundle: &Bundle, id: &str) -> Result<Everywhere> {
    let path = bundle.cgroups_path()?;
    cgroup::own(path.as_deref(), id)
}

async fn delete_by_force(flags: &Flags, bundle: &Bundle, reaper: &Arc<Reaper>) -> Result<()> {
    let options = options::read(bundle.path()).unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "{}: {}", flags.id, error_chain(&error));
        options::without_file(bundle.path())
    });
    let runtime = OciRuntime::find(options, bundle, &flags.namespace, reaper)?;
    // stasis-runtime also ends an operation that is under way.
    let deleted = runtime.delete_by_force(&flags.id, bundle).await;
    runtime.ignore_if_gone(&flags.id, deleted)
}

fn response(bundle: &Bundle) -> DeleteResponse {
    let killed = Exit::killed();
    DeleteResponse {
        pid: Bundle::read_pid(&bundle.init_pid_file()).unwrap_or_default(),
        exit_status: killed.status,
        exited_at: MessageField::some(killed.at.into()),
        ..DeleteResponse::default()
    }
}
