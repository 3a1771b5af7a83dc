//! systemd as the first process of a container with a terminal: it opens and closes the console for
//! each line.

use std::fs;

use anyhow::{Result, ensure};
use stasis_integration::client::containerd::{Containerd, INIT, Output, Streams, process};

use crate::{create, run, systemd_driver, until};

/// The node's own files, with what is written on top of them in memory.
const ROOT: &str = "/run/machine";
const LAYERS: &str = "lowerdir=/,upperdir=/run/machine/upper,workdir=/run/machine/work";

pub(crate) fn has_a_terminal(client: &Containerd) -> Result<()> {
    let id = "machine";
    lay_out_root()?;
    let root = format!("{ROOT}/root");
    let cgroup = "type=cgroup,src=cgroup,dst=/sys/fs/cgroup,options=rw:nosuid:noexec:nodev";
    let options = [
        "--privileged",
        "-t",
        "--env",
        "container=stasis",
        "--mount",
        cgroup,
        "--rootfs",
    ];
    create(
        client,
        id,
        &options,
        &[&root, id, "/sbin/init", "--show-status=yes"],
    )?;
    let (console, streams) = terminal("console")?;
    client.create_on(Vec::new(), id, &streams, systemd_driver()?)?;
    client.start(id, INIT)?;
    until("Reached target … Multi-User", || {
        ensure!(!console.ended(), "it ended with {:?}", console.so_far());
        let text = console.so_far();
        Ok(text.contains("Reached target") && text.contains("Multi-User System"))
    })?;
    console_is_used_again(client, id, &console)?;
    background_job_holds_up_nobody(client, id)?;
    client.kill(id, INIT, 9)?;
    client.wait(id, INIT)?;
    until("the end of the console", || Ok(console.ended()))?;
    client.delete(id)?;
    client.remove_container(id)?;
    run("umount", &[&root])?;
    run("umount", &[ROOT])
}

fn lay_out_root() -> Result<()> {
    fs::create_dir_all(ROOT)?;
    run("mount", &["-t", "tmpfs", "tmpfs", ROOT])?;
    for directory in ["upper/etc", "work", "root"] {
        fs::create_dir_all(format!("{ROOT}/{directory}"))?;
    }
    // The node's disks and services are not the container's.
    fs::write(format!("{ROOT}/upper/etc/fstab"), "")?;
    run(
        "mount",
        &[
            "-t",
            "overlay",
            "overlay",
            "-o",
            LAYERS,
            &format!("{ROOT}/root"),
        ],
    )
}

/// systemd has closed the console since its last line.
fn console_is_used_again(client: &Containerd, id: &str, console: &Output) -> Result<()> {
    let script = "for line in 1 2 3; do echo line $line >/dev/console; done";
    let command = process(&["/bin/sh", "-c", script], false);
    ensure!(client.run_exec(id, "writer", &Streams::default(), command)? == 0);
    until("lines of another process", || {
        Ok(console.so_far().contains("line 1\r\nline 2\r\nline 3\r\n"))
    })
}

/// `kubectl exec -it POD -- bash`, in which a user starts a server.
fn background_job_holds_up_nobody(client: &Containerd, id: &str) -> Result<()> {
    let (output, streams) = terminal("shell")?;
    let script = "trap '' HUP; sleep 1000 & echo $!; exit 3";
    client.exec(
        id,
        "shell",
        &streams,
        process(&["/bin/sh", "-c", script], true),
    )?;
    client.start(id, "shell")?;
    ensure!(client.wait(id, "shell")?.status == 3);
    until("the end of the output", || Ok(output.ended()))?;
    let text = output.so_far();
    ensure!(client.delete_exec(id, "shell")?.status == 3);
    let job = text.trim();
    let alive = process(&["/bin/sh", "-c", &format!("kill -0 {job}")], false);
    let asked = client.run_exec(id, "asks", &Streams::default(), alive)?;
    ensure!(asked == 0, "the job {job:?} has ended");
    Ok(())
}

fn terminal(name: &str) -> Result<(Output, Streams)> {
    let path = format!("/run/terminals/{name}");
    let output = Output::reached_at(path.clone().into(), &path)?;
    let streams = Streams::of_terminal(["", &path]);
    Ok((output, streams))
}
