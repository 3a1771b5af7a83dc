//! containerd is killed while an operation is under way: the shim and the operation go on, and the
//! next containerd finds the task as it is.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::{Containerd, INIT, State};
use stasis_integration::container::crash_container::{CrashContainer, answered, checkpoint};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

const DURING: &str = "/images/during";

on_hosts!(crashes: trixie, sid_v2);

fn crashes(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?.through_the_shim()?;
    stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    let victim = CrashContainer::make(&stasis, "victim", &["/bin/memcheck", "64", "10000"])?;
    victim.start(&client, None)?;
    assert_eq!(stasis.ask_until_up(10000)?, "ok 0");
    let client = during_a_checkpoint(&stasis, &client, &victim)?;
    during_a_restore(&stasis, &client, &victim)
}

/// Kills containerd and starts it again.
fn crash(stasis: &StasisHost) -> Result<Containerd> {
    let pid = stasis.run_for_text(&["pidof", "containerd"])?;
    stasis.run(&["kill", "-KILL", &pid])?;
    stasis.until_gone(pid.parse()?)?;
    stasis.host.containerd()?;
    Containerd::connect(&stasis.host)
}

fn during_a_checkpoint(
    stasis: &StasisHost,
    client: &Containerd,
    victim: &CrashContainer<'_>,
) -> Result<Containerd> {
    stasis.hold_gpu_checkpoint("victim")?;
    let caller = victim.begin_checkpoint(client, DURING)?;
    let operation = victim.in_phase("gpu checkpoint")?;
    let client = crash(stasis)?;
    let answer = answered(caller.join())?;
    ensure!(answer.is_err(), "a killed containerd answered: {answer:?}");
    assert_eq!(victim.in_phase("gpu checkpoint")?, operation);
    assert_eq!(stasis.ctr_status("victim")?, "RUNNING");
    let second = checkpoint(&client, "victim", "/images/second", false);
    println!("a second checkpoint meanwhile: {second:?}");
    assert!(second.is_err());
    stasis.let_gpu_checkpoint_go()?;
    victim.operation_over()?;
    stasis.inject("")?;
    for file in ["stasis.json", "inventory.img"] {
        let path = stasis.path(format!("{DURING}/{file}"));
        assert!(path.exists(), "{file}");
    }
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    // To the shim, the operation ends with its process.
    wait_until_clear(|| {
        let after = checkpoint(&client, "victim", "/images/after", false);
        Ok(after.err().map(|error| format!("{error:?}")))
    })?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 2"));
    let mut events = client.events()?;
    victim.end(&client)?;
    events.until("victim", "exit victim 137")?;
    victim.nothing_left(&client)?;
    Ok(client)
}

fn during_a_restore(
    stasis: &StasisHost,
    client: &Containerd,
    victim: &CrashContainer<'_>,
) -> Result<()> {
    stasis.hold_driver("restore victim", "back")?;
    let caller = victim.begin_restore(client, DURING)?;
    let operation = victim.in_phase("gpu restore")?;
    let client = crash(stasis)?;
    let answer = answered(caller.join())?;
    ensure!(answer.is_err(), "a killed containerd answered: {answer:?}");
    assert_eq!(victim.in_phase("gpu restore")?, operation);
    assert_eq!(stasis.ctr_status("victim")?, "CREATED");
    stasis.let_driver_go("back")?;
    victim.operation_over()?;
    stasis.inject("")?;
    wait_until_clear(|| {
        let state = client.state("victim", INIT)?.status();
        Ok((state != State::Running).then(|| format!("{state:?}")))
    })?;
    assert_eq!(stasis.ctr_status("victim")?, "RUNNING");
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    let mut events = client.events()?;
    let waiting = victim.begin(&client, |client| client.wait("victim", INIT).map(drop))?;
    client.kill("victim", INIT, 9)?;
    answered(waiting.join())?.context("waiting for its end")?;
    events.until("victim", "exit victim 137")?;
    client.delete("victim")?;
    victim.nothing_left(&client)
}
