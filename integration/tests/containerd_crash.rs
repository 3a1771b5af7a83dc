//! containerd is killed while an operation is under way: shim and operation go on, and the next
//! containerd finds the task as it is.

use anyhow::{Context, Result, ensure};
use stasis_integration::containerd::{Containerd, INIT, State};
use stasis_integration::deadline::until_none;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::Lab;
use stasis_integration::victim::{Victim, answered, checkpoint};

const DURING: &str = "/images/during";

#[test]
fn trixie() -> Result<()> {
    crashes(Suite::Trixie, Cgroups::oldest()?)
}

#[test]
fn sid() -> Result<()> {
    crashes(Suite::Sid, Cgroups::V2)
}

fn crashes(suite: Suite, cgroups: Cgroups) -> Result<()> {
    let lab = Lab::start(suite, cgroups, "runc")?.through_the_shim()?;
    lab.containerd()?;
    let client = Containerd::connect(&lab.host)?;
    let victim = Victim::make(&lab, "victim", &["/bin/memcheck", "64", "10000"])?;
    victim.start(&client, None)?;
    assert_eq!(lab.ask_until_up(10000)?, "ok 0");
    let client = during_a_checkpoint(&lab, &client, &victim)?;
    during_a_restore(&lab, &client, &victim)
}

/// Kills containerd and starts it again.
fn crash(lab: &Lab) -> Result<Containerd> {
    let pid = lab.host.run_for_text(&["pidof", "containerd"])?;
    lab.host.run(&["kill", "-KILL", &pid])?;
    until_none(|| Ok(lab.lives(pid.parse()?).then(|| "containerd".to_owned())))?;
    lab.host.containerd()?;
    Containerd::connect(&lab.host)
}

fn during_a_checkpoint(lab: &Lab, client: &Containerd, victim: &Victim<'_>) -> Result<Containerd> {
    lab.order("checkpoint victim slow:4000")?;
    let caller = victim.begin_checkpoint(client, DURING)?;
    let operation = victim.in_phase("gpu checkpoint")?;
    let client = crash(lab)?;
    let answer = answered(caller.join())?;
    ensure!(answer.is_err(), "a killed containerd answered: {answer:?}");
    assert_eq!(victim.in_phase("gpu checkpoint")?, operation);
    assert_eq!(lab.ctr_status("victim")?, "RUNNING");
    let second = checkpoint(&client, "victim", "/images/second", false);
    println!("a second checkpoint meanwhile: {second:?}");
    assert!(second.is_err());
    victim.operation_over()?;
    lab.order("")?;
    for file in ["stasis.json", "inventory.img"] {
        let path = lab.host.path(format!("{DURING}/{file}"));
        assert!(path.exists(), "{file}");
    }
    assert_eq!(lab.ask(10000)?.as_deref(), Some("ok 1"));
    // The shim has seen the end of the operation, too.
    checkpoint(&client, "victim", "/images/after", false)?;
    assert_eq!(lab.ask(10000)?.as_deref(), Some("ok 2"));
    let mut events = client.events()?;
    victim.end(&client)?;
    events.until("victim", "exit victim 137")?;
    victim.nothing_left(&client)?;
    Ok(client)
}

fn during_a_restore(lab: &Lab, client: &Containerd, victim: &Victim<'_>) -> Result<()> {
    lab.order("restore victim slow:4000")?;
    let caller = victim.begin_restore(client, DURING)?;
    let operation = victim.in_phase("gpu restore")?;
    let client = crash(lab)?;
    let answer = answered(caller.join())?;
    ensure!(answer.is_err(), "a killed containerd answered: {answer:?}");
    assert_eq!(victim.in_phase("gpu restore")?, operation);
    assert_eq!(lab.ctr_status("victim")?, "CREATED");
    victim.operation_over()?;
    lab.order("")?;
    until_none(|| {
        let state = client.state("victim", INIT)?.status();
        Ok((state != State::Running).then(|| format!("{state:?}")))
    })?;
    assert_eq!(lab.ctr_status("victim")?, "RUNNING");
    assert_eq!(lab.ask(10000)?.as_deref(), Some("ok 1"));
    let mut events = client.events()?;
    let waiting = victim.begin(&client, |client| client.wait("victim", INIT).map(drop))?;
    client.kill("victim", INIT, 9)?;
    answered(waiting.join())?.context("waiting for its end")?;
    events.until("victim", "exit victim 137")?;
    client.delete("victim")?;
    victim.nothing_left(&client)
}
