//! A network between test hosts without a way out: a bridge in one of them, and a pair of
//! interfaces to each other one. A host's part of it is gone with the host.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Host;
use crate::check::wait::wait_until_clear;
use crate::host::installed::StasisHost;

/// The bridge, and the name of the others' end.
const BRIDGE: &str = "between";

/// A network around one host.
#[derive(Debug)]
pub struct Network<'h> {
    hub: &'h Host,
}

impl<'h> Network<'h> {
    /// Makes the network; the host is number 1 in it.
    pub fn around(hub: &'h Host) -> Result<Self> {
        ip(hub, &["link", "add", BRIDGE, "type", "bridge"])?;
        give_address(hub, 1)?;
        Ok(Self { hub })
    }

    /// Joins another host to it, as the one of this number.
    pub fn join(&self, host: &Host, number: u8) -> Result<()> {
        let (ours, theirs) = (format!("host{number}"), host.init().to_string());
        let pair = ["link", "add", &ours, "type", "veth"];
        let peer = ["peer", "name", BRIDGE, "netns", &theirs];
        ip(self.hub, &[&pair[..], &peer].concat())?;
        ip(self.hub, &["link", "set", &ours, "master", BRIDGE, "up"])?;
        give_address(host, number)
    }
}

/// Returns the address of a host of this number.
#[must_use]
pub fn address(number: u8) -> String {
    format!("10.44.0.{number}")
}

fn give_address(host: &Host, number: u8) -> Result<()> {
    let whole = format!("{}/24", address(number));
    ip(host, &["address", "add", &whole, "dev", BRIDGE])?;
    ip(host, &["link", "set", BRIDGE, "up"])
}

/// Runs this machine's `ip` in the network of a host: pids are those that this process sees.
fn ip(host: &Host, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("nsenter");
    command.args(["--target", &host.init().to_string(), "--net", "ip"]);
    let output = command.args(arguments).output().context("nsenter")?;
    ensure!(
        output.status.success(),
        "ip {} in test host {}: {}{}",
        arguments.join(" "),
        host.name(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

impl StasisHost {
    /// Asks a workload, once it listens, in the network of a process of the host.
    pub fn ask_inside(&self, pid: &str, port: u16) -> Result<String> {
        let inside = |script: &str| {
            let enter = ["nsenter", "--target", pid, "--net", "bash", "-c", script];
            self.run_for_text(&enter)
        };
        wait_until_clear(|| {
            let sockets = inside("ss -Hlun")?;
            let listens = sockets.contains(&format!(":{port}"));
            Ok((!listens).then_some(sockets))
        })?;
        let ask =
            format!("exec 3<>/dev/udp/127.0.0.1/{port}; echo x >&3; timeout 60 head -n 1 <&3");
        inside(&ask)
    }
}
