//! The parent, a container's process or all keepers are killed, at each step.

use std::fs;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::wait::wait_until_clear;

use super::three::{IDS, Three, answer, of};

const HELD: &str = "step";
const PARENT: &str = "^/usr/local/bin/stasis checkpoint --group";

/// Matches the command line of the process that checkpoints this container.
fn of_container(id: &str) -> String {
    format!("stasis-runtime --stasis-group.* {id}$")
}

/// The driver calls at which a process is killed, in their order.
const STEPS: [&str; 3] = ["get-state a", "lock a", "checkpoint a"];

/// Whichever process is killed, nothing is changed, and no image exists.
pub(super) fn before_all_are_complete(three: &mut Three<'_>) -> Result<()> {
    for step in STEPS {
        for victim in [PARENT.to_owned(), of_container("a"), of_container("b")] {
            // The second is started when the first is checked.
            if step.starts_with("get-state") && victim == of_container("b") {
                continue;
            }
            let into = three.directory();
            at(three, step, &into, |three| three.kill(&victim))
                .with_context(|| format!("{step}: {victim}"))?;
            three.no_image(&into)?;
        }
    }
    all_keepers(three)?;
    both_of_one(three)?;
    in_a_dump(three)
}

/// The operations start other keepers, and succeed.
fn all_keepers(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    at(three, "checkpoint a", &into, |three| {
        three.stasis.kill_keepers()
    })?;
    ensure!(three.stasis.path(format!("{into}/group.json")).exists());
    Ok(())
}

/// A process and its keeper: the parent undoes their work.
fn both_of_one(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.stasis.hold_driver("checkpoint a", HELD)?;
    let group = three.begin(&into, &["-R", "--json"])?;
    three.stasis.until_driver_is_called()?;
    three.stasis.kill_keepers()?;
    three.kill(&of_container("a"))?;
    three.stasis.let_driver_go(HELD)?;
    let output = group.wait_with_output()?;
    ensure!(output.status.code() == Some(1));
    three.stasis.inject("")?;
    three.stasis.nothing_to_put_right()?;
    three.no_image(&into)?;
    three.go_on()
}

/// The dump of one continues alone, and its image is given up.
fn in_a_dump(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    let script = "case \" $* \" in *' a '*) kill -9 $PPID;; esac";
    three.bundles[0].before_criu(script, "")?;
    let output = three.begin(&into, &["-R", "--json"])?.wait_with_output()?;
    three.set("")?;
    ensure!(output.status.code() == Some(1));
    three.stasis.nothing_to_put_right()?;
    three.no_image(&into)?;
    three.go_on()
}

/// The images are complete: all go on, or all end.
pub(super) fn behind_that(three: &mut Three<'_>) -> Result<()> {
    for victim in [PARENT.to_owned(), of_container("a")] {
        let into = three.directory();
        at(three, "restore a", &into, |three| three.kill(&victim))
            .with_context(|| victim.clone())?;
        ensure!(three.stasis.path(format!("{into}/group.json")).exists());
        ensure!(!three.stasis.path(format!("{into}/a/.stasis-new")).exists());
    }
    let into = three.directory();
    // The processes that first end a container are killed with their parent; their keepers end it.
    three.bundles[0].before("delete", "pkill -KILL -x 'stasis|stasis-runtime'", "")?;
    let output = three.begin(&into, &["--json"])?.wait_with_output()?;
    ensure!(!output.status.success(), "it was not killed");
    three.stasis.nothing_to_put_right()?;
    three.set("")?;
    for bundle in &three.bundles {
        bundle.delete()?;
    }
    three.restore(&into)
}

/// A container's process gets SIGTERM while it waits for the others.
pub(super) fn by_sigterm(three: &mut Three<'_>) -> Result<()> {
    let into = three.directory();
    three.stasis.hold_driver("checkpoint a", HELD)?;
    let group = three.begin(&into, &["-R", "--json"])?;
    three.stasis.until_driver_is_called()?;
    three.signal("-TERM", &of_container("c"))?;
    wait_until_clear(|| {
        let entries = fs::read_dir(three.stasis.path(&into))?;
        let names: Vec<_> = entries
            .map(|entry| Ok(entry?.file_name()))
            .collect::<Result<_>>()?;
        let mut names = names.iter().map(|name| name.to_string_lossy());
        Ok(names
            .find(|name| name.starts_with(".stasis-group-"))
            .map(|name| name.into_owned()))
    })?;
    three.stasis.let_driver_go(HELD)?;
    let answer = answer(&group.wait_with_output()?)?;
    ensure!(of(&answer, "c", "kind") == "cancelled", "{answer:#}");
    for id in IDS {
        ensure!(of(&answer, id, "state") == "unharmed", "{answer:#}");
    }
    three.no_image(&into)
}

/// Does something while a driver call is held; the call may be made after that.
fn at(
    three: &mut Three<'_>,
    call: &str,
    into: &str,
    act: impl FnOnce(&Three<'_>) -> Result<()>,
) -> Result<()> {
    three.stasis.hold_driver(call, HELD)?;
    let group = three.begin(into, &["--leave-running", "--json"])?;
    three.stasis.until_driver_is_called()?;
    let acted = act(three);
    three.stasis.let_driver_go(HELD)?;
    acted?;
    group.wait_with_output()?;
    three.stasis.inject("")?;
    three.stasis.nothing_to_put_right()?;
    three.go_on()
}
