//! A container that waits for room, which an operator keeps off the GPU.

use anyhow::{Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::ROOT;
use stasis_integration::host::installed::PROGRAM;

use super::going_back::Here;
use super::{PORTS, state};

/// Without its keeper it is shown as cut off. With one a suspend keeps it off the GPU that others
/// have got, until it is resumed.
pub(super) fn one_that_waits(here: &Here<'_>) -> Result<()> {
    let operation = here.begin("kept-off", "exit 1", 1)?;
    here.fails(operation)?;
    let host = &here.stasis.host;
    let is_shown = || -> Result<bool> {
        let found = host.command(PROGRAM).arg("doctor").output()?;
        Ok(String::from_utf8_lossy(&found.stdout).contains("killed together with their keepers"))
    };
    ensure!(!is_shown()?, "its keeper waits");
    here.stasis.kill_keepers()?;
    ensure!(is_shown()?, "nobody waits");
    let said = host.command(PROGRAM).args(["recover", "home"]).output()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_contains(&said, &["not undone yet, stasis tries again"]);
    let suspended = host.run_for_text(&[PROGRAM, "suspend", "--root", ROOT, "home"])?;
    assert_contains(&suspended, &["home: suspended"]);
    ensure!(here.stasis.ask(PORTS[1])?.as_deref() == Some("ok 1"));
    here.guest.delete()?;
    wait_until_clear(|| Ok(Some(here.stasis.keepers()).filter(|all| !all.is_empty())))?;
    ensure!(state(here.stasis, here.home)? == "checkpointed");
    host.run_for_text(&[PROGRAM, "resume", "--root", ROOT, "home"])?;
    here.stasis.nothing_to_put_right()
}
