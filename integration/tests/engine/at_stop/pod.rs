//! A container of a pod, whose network outlives the container.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::StasisHost;

use super::killed::{kill_the_stopper, signal_the_checkpoint};
use super::{ended, images, notes};

const POD: &str = "pod";

/// The pod's network works as before, also if all processes but CRIU are killed while CRIU has it
/// locked: CRIU's complete image is then the next container's.
pub(super) fn it_is_saved_below_its_namespace(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.annotate("io.kubernetes.cri.sandbox-namespace", "red")?;
    join_network(stasis, job)?;
    for (answer, step) in [("101", "killed"), ("102", "stopped"), ("103", "again")] {
        job.create()?;
        job.start()?;
        assert_eq!(asked(stasis)?, answer);
        match step {
            "killed" => kill_all_but_criu(stasis, job)?,
            _ => job.kill("TERM")?,
        }
        ended(stasis, job)?;
        job.delete()?;
        others_can_send(stasis).context(step)?;
    }
    assert_eq!(notes(stasis)?, Value::Null);
    assert_eq!(images(stasis, "red/keys/pod")?, 2);
    assert!(!stasis.path("/images/keys/pod").exists());
    Ok(())
}

fn kill_all_but_criu(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    stasis.hold_criu("pre-dump")?;
    job.kill("TERM")?;
    stasis.until_criu_is_held()?;
    kill_the_stopper(stasis)?;
    signal_the_checkpoint(stasis, "-KILL")?;
    stasis.let_criu_go()
}

fn join_network(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    stasis.run(&["ip", "netns", "add", POD])?;
    let up = ["ip", "-n", POD, "link", "set", "lo", "up"];
    stasis.run(&up)?;
    job.change(|spec| {
        let namespaces = spec["linux"]["namespaces"].as_array_mut();
        namespaces.into_iter().for_each(|all| {
            all.push(json!({ "type": "network", "path": format!("/run/netns/{POD}") }));
        });
    })
}

fn in_network(stasis: &StasisHost, script: &str) -> Result<String> {
    let command = ["ip", "netns", "exec", POD, "bash", "-ec", script];
    stasis.run_for_text(&command)
}

/// Returns the job's answer to one packet, which is sent once the job listens.
fn asked(stasis: &StasisHost) -> Result<String> {
    wait_until_clear(|| {
        let sockets = in_network(stasis, "ss -Hlun")?;
        Ok((!sockets.contains(":10000")).then_some(sockets))
    })?;
    let ask = "exec 3<>/dev/udp/127.0.0.1/10000; echo x >&3; timeout 60 head -n 1 <&3";
    Ok(in_network(stasis, ask)?.trim().to_owned())
}

/// Checks that other processes of the pod can send over IPv4 and IPv6.
fn others_can_send(stasis: &StasisHost) -> Result<()> {
    let send = "for to in 127.0.0.1 ::1; do echo x >/dev/udp/$to/9; done";
    in_network(stasis, send).map(drop)
}
