//! Many processes in one container at once: they all start and end, others are answered meanwhile,
//! and nothing of them stays.

use std::fs;

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{Answer, Beside, Containerd, INIT, Streams, process};
use stasis_integration::client::shim::in_host;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// Callers at the same time.
const CALLERS: usize = 40;
/// What each of them starts.
const EACH: usize = 25;

on_hosts!(checks: sid_v2);

fn checks(kind: HostKind) -> Result<()> {
    in_host(kind, &[a_thousand_processes_are_added_at_once])
}

fn a_thousand_processes_are_added_at_once(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "busy";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let shim = stasis.shims()?[0];
    let open = || anyhow::Ok(fs::read_dir(stasis.host.path(format!("/proc/{shim}/fd")))?.count());
    let before = open()?;
    let callers: Vec<Beside<Answer<()>>> = (0..CALLERS)
        .map(|caller| client.beside(move |client| start_each(client, id, caller)))
        .collect::<Result<_>>()?;
    wait_until_clear(|| {
        let pids = client.pids(id)?.len();
        Ok((pids < CALLERS).then(|| format!("{pids} processes")))
    })?;
    client.kill(id, INIT, 0)?;
    assert!(callers.iter().any(Beside::goes_on), "the answer came late");
    for caller in callers {
        caller.outcome()??;
    }
    assert_eq!(client.pids(id)?.len(), CALLERS * EACH + 1);
    client.kill(id, INIT, 9)?;
    assert_eq!(client.wait(id, INIT)?.status, 137);
    for caller in 0..CALLERS {
        for exec in (0..EACH).map(|number| name(caller, number)) {
            assert_eq!(client.delete_exec(id, &exec)?.status, 137);
        }
    }
    wait_until_clear(|| {
        let now = open()?;
        Ok((now > before).then(|| format!("{now} open files, and {before} before")))
    })?;
    stasis.ctr_remove(id)?;
    stasis.nothing_left_of(&[id])
}

fn start_each(client: &Containerd, id: &str, caller: usize) -> Answer<()> {
    for exec in (0..EACH).map(|number| name(caller, number)) {
        let command = process(&["/bin/pause"], false);
        client.exec(id, &exec, &Streams::default(), command)?;
        client.start(id, &exec)?;
    }
    Ok(())
}

fn name(caller: usize, number: usize) -> String {
    format!("e{caller}-{number}")
}
