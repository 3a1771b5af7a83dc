//! The parent of a restore, or a container's process, is killed before and after the decision.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;

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
    let left = three.stasis.path("/run/stasis/restores");
    ensure!(fs::read_dir(left)?.next().is_none(), "decisions are left");
    Ok(())
}

/// The program of a restored container is told so once, whichever process lets it go on.
pub(super) fn hooks(three: &mut Three<'_>) -> Result<()> {
    let hooks = json!({
        "io.stasis.hook.before-checkpoint": "echo before >>/hooks",
        "io.stasis.hook.after-restore": "echo after >>/hooks",
    });
    three.bundles[0].change(|spec| spec["annotations"] = hooks)?;
    is_told(three, |three, from| three.restore_together(from)).context("as ever")?;
    let fails_once = |three: &Three<'_>, from: &str| {
        three.stasis.inject("unlock a error:999 2")?;
        three.restore_together(from)
    };
    is_told(three, fails_once).context("at the second try")?;
    let is_killed = |three: &Three<'_>, from: &str| at(three, "unlock a", from, &of_container("a"));
    is_told(three, is_killed).context("by the keeper")?;
    three.bundles[0].change(|spec| spec["annotations"] = json!({}))
}

/// Checkpoints and restores, and checks that the hooks of both were run.
fn is_told(
    three: &mut Three<'_>,
    restore: impl FnOnce(&Three<'_>, &str) -> Result<()>,
) -> Result<()> {
    let into = three.directory();
    three.checkpoint(&into, &[])?;
    restore(three, &into)?;
    three.stasis.inject("")?;
    three.stasis.nothing_to_put_right()?;
    three.go_on()?;
    let path = format!("{}/rootfs/hooks", three.bundles[0].directory());
    let path = three.stasis.path(path);
    let run = fs::read_to_string(&path)?;
    ensure!(run == "before\nafter\n", "{run:?}");
    Ok(fs::remove_file(path)?)
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
