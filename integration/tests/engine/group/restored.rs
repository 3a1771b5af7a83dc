//! The parent of a restore, or a container's process, is killed before and after the decision.

use anyhow::{Context, Result, ensure};

use super::three::Three;

const HELD: &str = "step";
const PARENT: &str = "^/usr/local/bin/stasis restore --group";

/// Matches the command line of the process that restores this container.
fn of_container(id: &str) -> String {
    format!("stasis-runtime --stasis-group.* {id}$")
}

pub(super) fn killed(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.checkpoint(&into, &[])?;
    for victim in [PARENT.to_owned(), of_container("a"), of_container("c")] {
        at(three, "restore a", &into, &victim).with_context(|| victim.clone())?;
        three.nothing_is_left()?;
    }
    at(three, "unlock a", &into, PARENT)?;
    three.stasis.nothing_to_put_right()?;
    three.go_on()?;
    let into = three.directory();
    three.checkpoint(&into, &[])?;
    at(three, "unlock a", &into, &of_container("a"))?;
    three.stasis.nothing_to_put_right()?;
    let left = three.stasis.host.path("/run/stasis/restores");
    ensure!(
        std::fs::read_dir(left)?.next().is_none(),
        "decisions are left"
    );
    Ok(())
}

/// Kills a process while a driver call is held; the call may be made after that.
fn at(three: &Three<'_>, call: &str, from: &str, victim: &str) -> Result<()> {
    three.stasis.hold_driver(call, HELD)?;
    let restore = three.restore_command(from, &[]).spawn()?;
    three.stasis.until_driver_is_called()?;
    let killed = three.kill(victim);
    three.stasis.let_driver_go(HELD)?;
    killed?;
    restore.wait_with_output()?;
    three.stasis.inject("")
}
