//! Many processes in one container at once: they all start and end, other calls are answered
//! meanwhile, and nothing of them stays. Many containers, many processes, and a containerd that is
//! killed in the middle: nothing is lost.

use std::fs;

use anyhow::Result;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{Answer, Beside, Containerd, INIT, Streams, process};
use stasis_integration::client::shim::{Shim, in_host};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::load::{self, Size};
use stasis_integration::on_hosts;

/// The number of simultaneous callers.
const CALLERS: usize = 40;
/// The number of processes that each caller starts.
const EACH: usize = 25;

/// The growth that a shim may have, in KiB.
const GROWTH: usize = 2048;

on_hosts!(in_host [a_thousand_processes_are_added_at_once]: sid_v2);

mod with_a_restart {
    stasis_integration::on_hosts!(super::nothing_is_lost: sid_v2);
}

fn a_thousand_processes_are_added_at_once(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let id = "busy";
    stasis.start_container(client, id, &[], &["/bin/pause"])?;
    let shim = stasis.shims()?[0];
    let open = || anyhow::Ok(fs::read_dir(stasis.path(format!("/proc/{shim}/fd")))?.count());
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
    client.kill_init(id)?;
    for caller in 0..CALLERS {
        for exec in (0..EACH).map(|number| name(caller, number)) {
            assert_eq!(client.delete_exec(id, &exec)?.status, 137);
        }
    }
    wait_until_clear(|| {
        let now = open()?;
        Ok((now > before).then(|| format!("{now} open files, and {before} before")))
    })?;
    stasis.ctr_remove_all_of(id)
}

fn nothing_is_lost(kind: HostKind) -> Result<()> {
    let size = load::asked(Size::SMALL, Size::FULL);
    let stasis = StasisHost::of(kind)?;
    stasis.install_shim()?;
    let containerd = stasis.containerd()?;
    let shim = Shim::under_test();
    let outcome = size.carry_out(&stasis, (shim.runtime(), shim.program()), containerd)?;
    println!("{outcome:#?}");
    assert_eq!(outcome.faults, Vec::<String>::new());
    let (before, after) = (outcome.before, outcome.after);
    assert_eq!(after.count, before.count);
    // A Go program has as many threads as it sees fit.
    assert!(
        after.threads <= before.threads || shim == Shim::Go,
        "{before:?} {after:?}"
    );
    assert!(after.files <= before.files, "{before:?} {after:?}");
    let growth = after.resident.saturating_sub(before.resident) / before.count;
    assert!(growth <= GROWTH, "{before:?} {after:?}");
    let ids: Vec<String> = size.ids().collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    stasis.nothing_left_of(&ids)
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
