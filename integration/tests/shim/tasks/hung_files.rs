//! A file system that answers no request, with the root or the log of a container of a pod: the
//! other containers of the pod are served, and end.

use std::fs;
use std::process::Stdio;

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{
    Code, Containerd, INIT, Mount, State, Streams, code, process,
};
use stasis_integration::client::shim::in_host;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// A FUSE server that never reads its requests.
const SERVER: &str = r"
mkdir -p /opt/hung
exec 3<>/dev/fuse
mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hung /opt/hung
echo $$ > /run/hung.pid
exec sleep 600
";
const PID: &str = "/run/hung.pid";
const GROUP: [&str; 2] = ["--annotation", "io.containerd.runc.v2.group=well"];

on_hosts!(in_host [others_are_served_beside_files_that_hang]: trixie, sid_v2);

fn others_are_served_beside_files_that_hang(
    stasis: &StasisHost,
    client: &Containerd,
) -> Result<()> {
    let ids = ["well", "hung-root", "hung-log", "hung-exec"];
    let init = stasis.start_container(client, ids[0], &GROUP, &["/bin/pause"])?;
    let shim = stasis.parent(init)?;
    stasis.start_container(client, ids[3], &GROUP, &["/bin/pause"])?;
    let mut server = serve_nothing(stasis)?;

    stasis.create_container(ids[1], &GROUP, &["/bin/pause"])?;
    let root = client.beside(|client| {
        let bind = Mount {
            r#type: "bind".to_owned(),
            source: "/opt/hung/root".to_owned(),
            options: vec!["rbind".to_owned()],
            ..Mount::default()
        };
        client.create_on(vec![bind], "hung-root", &Streams::default(), None)
    })?;
    until_so_many_hang(stasis, shim, 1)?;
    let log = Streams::new(["", "file:///opt/hung/log", ""]);
    stasis.create_container(ids[2], &GROUP, &["/bin/pause"])?;
    let logged = log.clone();
    let logged = client.beside(move |client| client.create("hung-log", &logged, None))?;
    until_so_many_hang(stasis, shim, 2)?;
    client.exec(ids[3], "e1", &log, process(&["true"], false))?;
    let exec = client.beside(|client| client.start("hung-exec", "e1"))?;
    until_so_many_hang(stasis, shim, 3)?;

    well_is_served_and_ends(client)?;
    assert!(root.goes_on() && logged.goes_on() && exec.goes_on());
    stasis.run(&["kill", "-KILL", &pid(stasis)])?;
    server.wait()?;
    assert_ne!(code(&root.outcome()?), Code::Ok);
    assert_ne!(code(&logged.outcome()?), Code::Ok);
    assert_ne!(code(&exec.outcome()?), Code::Ok);
    stasis.run(&["umount", "/opt/hung"])?;
    for id in ids {
        stasis.ctr_remove(id)?;
    }
    stasis.nothing_left_of(&ids)
}

fn well_is_served_and_ends(client: &Containerd) -> Result<()> {
    let id = "well";
    assert_eq!(client.state(id, INIT)?.status(), State::Running);
    client.exec(id, "e1", &Streams::default(), process(&["true"], false))?;
    client.start(id, "e1")?;
    assert_eq!(client.wait(id, "e1")?.status, 0);
    client.metrics(id)?;
    let mut events = client.events()?;
    client.kill_init(id)?;
    events.until(id, "exit well 137")?;
    client.delete(id)?;
    Ok(())
}

fn serve_nothing(stasis: &StasisHost) -> Result<std::process::Child> {
    if !stasis.path("/dev/fuse").exists() {
        stasis.run(&["mknod", "/dev/fuse", "c", "10", "229"])?;
    }
    let server = stasis
        .command("bash")
        .args(["-ec", SERVER])
        .stdin(Stdio::null())
        .spawn()?;
    wait_until_clear(|| {
        let started = stasis.path(PID).exists();
        Ok((!started).then(|| "nothing is mounted at /opt/hung".to_owned()))
    })?;
    Ok(server)
}

fn pid(stasis: &StasisHost) -> String {
    let pid = fs::read_to_string(stasis.path(PID)).unwrap_or_default();
    pid.trim().to_owned()
}

/// Waits until `count` threads of the shim wait for the server.
fn until_so_many_hang(stasis: &StasisHost, shim: u32, count: usize) -> Result<()> {
    wait_until_clear(|| {
        let mut places = Vec::new();
        for thread in fs::read_dir(stasis.path(format!("/proc/{shim}/task")))? {
            let place = fs::read_to_string(thread?.path().join("wchan"));
            places.push(place.unwrap_or_default());
        }
        let hanging = places.iter().filter(|place| place.contains("fuse"));
        Ok((hanging.count() < count).then(|| format!("the shim's threads wait in {places:?}")))
    })
}
