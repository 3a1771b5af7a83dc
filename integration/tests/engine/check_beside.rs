//! `stasis check` only looks: it blocks no operation on the container.

use std::fs;
use std::process::{Child, Stdio};

use anyhow::{Result, ensure};
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, SETTINGS, StasisHost};
use stasis_integration::{needs, on_hosts};

/// Settings by which a call of the driver is given up after 5 s, in place of 15 s.
const IMPATIENT: &str = "/etc/stasis/impatient.toml";

on_hosts!(neither_a_checkpoint_nor_a_resume_waits: trixie_v2);

fn neither_a_checkpoint_nor_a_resume_waits(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let counter = Bundle::make(stasis, "looked-at", &["/bin/counter", "10000"])?;
    counter.comes_up(10000, "101")?;

    let look = held_check(stasis, &counter)?;
    counter.checkpoint("image", &["--leave-running"])?;
    ended(stasis, look)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));

    let look = held_check(stasis, &counter)?;
    counter.pause()?;
    counter.resume()?;
    ended(stasis, look)?;
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("103"));
    counter.delete()
}

/// Starts a check that waits in the driver for the state of the container's process.
fn held_check(stasis: &StasisHost, counter: &Bundle<'_>) -> Result<Child> {
    stasis.hold_driver("get-state looked-at", "look")?;
    // The driver makes one call at a time for a process: the other operation waits for this one's
    // end, and has a longer deadline.
    let settings = fs::read_to_string(stasis.path(SETTINGS))?;
    let impatient = format!("{settings}\ndeadlines.lock_ms = 1\n");
    stasis.write(IMPATIENT, &impatient)?;
    let mut check = stasis.command(PROGRAM);
    check.args(["--config", IMPATIENT, "check", "--root", ROOT, "looked-at"]);
    check.stdout(Stdio::null()).stderr(Stdio::null());
    let check = check.spawn()?;
    stasis.until_driver_is_called()?;
    ensure!(counter.status()? == "running", "the container has ended");
    Ok(check)
}

/// The check ends, whatever it reports about a container that has changed meanwhile.
fn ended(stasis: &StasisHost, mut check: Child) -> Result<()> {
    stasis.let_driver_go("look")?;
    check.wait()?;
    Ok(())
}
