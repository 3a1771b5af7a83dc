//! Ends of containers that leave something behind: processes in another container's pid namespace,
//! a frozen cgroup.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{Containerd, INIT};
use stasis_integration::client::shim::in_host;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(in_host [
    nothing_outlives_init_in_a_shared_pid_namespace,
    root_file_system_in_use_is_waited_for,
]: trixie, sid_v2);

/// A frozen process of version 1 does not die before it is thawed.
mod frozen {
    use super::{in_host, init_that_ends_while_paused_can_be_deleted};

    stasis_integration::on_hosts!(
        in_host [init_that_ends_while_paused_can_be_deleted]: trixie_v2, sid_v2
    );
}

const SIGKILL: u32 = 9;

fn nothing_outlives_init_in_a_shared_pid_namespace(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let (sandbox, id) = ("sandbox", "shares");
    let pause = stasis.start_container(client, sandbox, &[], &["/bin/pause"])?;
    let namespace = format!("pid:/proc/{pause}/ns/pid");
    let command = ["sh", "-c", "/bin/pause & exec /bin/pause"];
    let init = stasis.start_container(client, id, &["--with-ns", &namespace], &command)?;
    wait_until_clear(|| {
        let pids = client.pids(id)?;
        Ok((pids.len() != 2).then(|| format!("{pids:?}")))
    })?;
    let pids = client.pids(id)?;
    stasis.run(&["kill", "-KILL", &init.to_string()])?;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    wait_until_clear(|| {
        let alive = pids.iter().find(|(pid, _)| works(stasis, *pid));
        Ok(alive.map(|(pid, _)| format!("process {pid} outlives its container")))
    })?;
    assert!(stasis.lives(pause));
    stasis.ctr_remove(id)?;
    stasis.ctr_remove(sandbox)?;
    stasis.nothing_left_of(&[id, sandbox])
}

/// Whether a process executes a program. The sandbox's init process reaps nothing, and a zombie has
/// no command line.
fn works(stasis: &StasisHost, pid: u32) -> bool {
    let line = fs::read(stasis.path(format!("/proc/{pid}/cmdline")));
    line.is_ok_and(|line| !line.is_empty())
}

/// An OOM kill, or a kill by hand: runc deletes no container whose cgroup is frozen.
fn init_that_ends_while_paused_can_be_deleted(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let id = "frozen";
    let init = stasis.start_container(client, id, &[], &["/bin/pause"])?;
    client.pause(id)?;
    stasis.run(&["kill", "-KILL", &init.to_string()])?;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    assert_eq!(client.delete(id)?.status, 137);
    stasis.ctr_remove(id)?;

    // Killed by its caller, for whom the low-level runtime thaws it.
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    client.pause(id)?;
    client.kill_init(id)?;
    assert_eq!(client.delete(id)?.status, 137);
    stasis.ctr_remove_all_of(id)
}

/// The time that the shim waits for users of a root file system (`bundle/mounts.rs`).
const WAITED_FOR: Duration = Duration::from_secs(1);

/// A backup, or `du`: the snapshot must not be removed while it is mounted.
fn root_file_system_in_use_is_waited_for(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "looked-at";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    client.kill(id, INIT, SIGKILL)?;
    client.wait(id, INIT)?;
    let root = format!("/run/containerd/io.containerd.runtime.v2.task/default/{id}/rootfs");
    // In use until the container is gone, right before its root file system is unmounted.
    let script = "cd \"$0\" && : >/run/looking && \
        while [ -e /run/containerd/runc/default/looked-at ]; do sleep 0.02; done; \
        sleep 0.2 && rm /run/looking";
    let mut looking = stasis.command("sh").args(["-c", script, &root]).spawn()?;
    let mark = stasis.path("/run/looking");
    wait_until_clear(|| Ok((!mark.exists()).then(|| "nobody looks".to_owned())))?;
    let begun = Instant::now();
    client.delete(id)?;
    assert!(
        !mark.exists() || begun.elapsed() > WAITED_FOR,
        "it was detached from who looks"
    );
    assert!(looking.wait()?.success());
    stasis.ctr_remove_all_of(id)
}
