//! Keepers that are killed, alone or with their operations.

use std::fs;
use std::process::Stdio;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::{Killed, PORT};

/// The driver's library in a host.
const LIBCUDA: &str = "usr/local/nvidia/lib64/libcuda.so.1";

/// The operation starts another keeper, and succeeds.
pub(super) fn of_the_keeper(here: &Killed<'_>) -> Result<()> {
    let (mut operation, _) = here.held("lock", || here.checkpoint())?;
    // The end of the caller's cgroup does not end the keeper.
    let cgroups = format!("/proc/{}/cgroup", here.stasis.keepers());
    let cgroups = here.stasis.run_for_text(&["cat", &cgroups])?;
    ensure!(
        cgroups.lines().any(|line| line.ends_with(":/stasis")),
        "{cgroups}"
    );
    here.stasis.kill_keepers()?;
    here.let_go()?;
    ensure!(operation.wait()?.success(), "it has failed");
    Ok(())
}

/// No process is left: an operator's command, or the next operation, undoes the work.
pub(super) fn of_both(here: &Killed<'_>) -> Result<()> {
    cut_off_with_its_keeper(here)?;
    tell_the_same(here.stasis)?;
    let recovered = here.stasis.run_for_text(&[PROGRAM, "recover", "counter"])?;
    ensure!(recovered.contains("counter"), "{recovered}");
    here.stasis.nothing_to_put_right()?;
    nothing_is_left_to_recover(here.stasis)?;
    cut_off_with_its_keeper(here)?;
    here.counter.checkpoint("next", &["--leave-running"])
}

/// Checks that both commands report the interrupted operation and its way out.
fn tell_the_same(stasis: &StasisHost) -> Result<()> {
    let said = |arguments: &[&str]| -> Result<(Option<i32>, String)> {
        let output = stasis.command(PROGRAM).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok((output.status.code(), said))
    };
    let (_, checked) = said(&["check", "--root", ROOT, "counter"])?;
    assert_contains(&checked, &["stands still", "stasis recover counter"]);
    let (code, found) = said(&["doctor"])?;
    ensure!(code == Some(1), "{found}");
    assert_contains(&found, &["operations", "counter", "stasis recover"]);
    Ok(())
}

fn cut_off_with_its_keeper(here: &Killed<'_>) -> Result<()> {
    let (mut operation, runtime) = here.held("checkpoint", || here.checkpoint())?;
    here.stasis.kill_keepers()?;
    kill(runtime, Signal::SIGKILL)?;
    operation.wait()?;
    here.let_go()?;
    ensure!(!here.stasis.records()?.is_empty(), "nothing is recorded");
    Ok(())
}

/// A driver that cannot be loaded for a while is no loss: the keeper tries again.
pub(super) fn without_a_driver(here: &Killed<'_>) -> Result<()> {
    let (mut operation, runtime) = here.held("checkpoint", || here.checkpoint())?;
    let library = here.stasis.path(LIBCUDA);
    let away = library.with_extension("away");
    fs::rename(&library, &away)?;
    kill(runtime, Signal::SIGKILL)?;
    operation.wait()?;
    here.let_go()?;
    let tried = wait_until_clear(|| {
        let said = here.stasis.operation("recover")?["error"].to_string();
        Ok((!said.contains("there is no driver")).then_some(said))
    });
    fs::rename(&away, &library)?;
    tried
}

/// A container that is created under the id of what was half restored is not taken for it.
pub(super) fn of_both_in_a_restore(here: &Killed<'_>) -> Result<()> {
    cut_off_in_a_restore(here)?;
    here.counter.comes_up(PORT, "101")?;
    ensure!(here.toggle()?.wait()?.success());
    ensure!(here.toggle()?.wait()?.success());
    here.stasis.nothing_to_put_right()?;
    here.counter.delete()?;
    here.counter.restore("good")
}

/// Nor is one that should begin with an image, which does not exist.
pub(super) fn of_both_before_a_cold_start(here: &Killed<'_>) -> Result<()> {
    cut_off_in_a_restore(here)?;
    here.counter.begin_with("/images/none")?;
    here.counter.run()?;
    is_not_ended(here)?;
    here.counter
        .change(|spec| spec["annotations"] = json!({}))?;
    here.counter.restore("good")
}

/// Nor is one that is created by the low-level runtime alone, as the shim does, behind a `delete`
/// of what that runtime does not know.
pub(super) fn of_both_before_a_delete(here: &Killed<'_>) -> Result<()> {
    cut_off_in_a_restore(here)?;
    let deleted = here.counter.runtime(&["delete", "counter"]).output()?;
    let said = String::from_utf8_lossy(&deleted.stderr);
    assert_contains(&said, &["does not exist"]);
    here.stasis.nothing_to_put_right()?;
    let plain = Bundle::laid_out(here.stasis, "counter").through("runc");
    plain.run()?;
    is_not_ended(here)?;
    here.counter.restore("good")
}

/// Checks that an operation on the container of the id does it no harm, and deletes it.
fn is_not_ended(here: &Killed<'_>) -> Result<()> {
    ensure!(here.stasis.ask_until_up(PORT)? == "101");
    here.counter.checkpoint("next", &["--leave-running"])?;
    ensure!(here.stasis.ask_until_up(PORT)? == "102");
    here.stasis.nothing_to_put_right()?;
    here.counter.delete()
}

/// Leaves the record of a restore, and no container.
fn cut_off_in_a_restore(here: &Killed<'_>) -> Result<()> {
    here.counter.checkpoint("good", &[])?;
    here.counter.delete()?;
    let (mut operation, runtime) = here.held("restore", || here.counter.begin_restore("good"))?;
    here.stasis.kill_keepers()?;
    kill(runtime, Signal::SIGKILL)?;
    operation.wait()?;
    here.let_go()?;
    // Not by a call that stasis sees.
    let delete = ["runc", "--root", ROOT, "delete", "--force", "counter"];
    here.stasis.run(&delete).map(drop)
}

/// The command reports at once that its operation was cut off, and what undoes it.
pub(super) fn of_both_below_a_command(here: &Killed<'_>) -> Result<()> {
    let image = here.counter.image("by-a-command");
    let asked = [
        "checkpoint",
        "counter",
        "--root",
        ROOT,
        "-R",
        "--image",
        &image,
    ];
    let mut command = here.stasis.command(PROGRAM);
    command.args(asked).stderr(Stdio::piped());
    let (operation, runtime) = here.held("checkpoint", || Ok(command.spawn()?))?;
    here.stasis.kill_keepers()?;
    kill(runtime, Signal::SIGKILL)?;
    here.let_go()?;
    let output = operation.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{said}");
    assert_contains(&said, &["run: stasis recover counter [cut-off]"]);
    here.stasis.run(&[PROGRAM, "recover", "counter"])?;
    here.status_is("running")
}

/// A recovery that an operator asks for, and that is impossible now, is retried until it succeeds.
pub(super) fn of_both_unreadable(here: &Killed<'_>) -> Result<()> {
    cut_off_with_its_keeper(here)?;
    let state = here.stasis.path(format!("{ROOT}/counter/state.json"));
    let whole = fs::read(&state)?;
    fs::write(&state, "{")?;
    let recover = [PROGRAM, "recover", "counter"];
    let recovered = here.stasis.command(PROGRAM).args(&recover[1..]).output()?;
    fs::write(&state, whole)?;
    let said = String::from_utf8_lossy(&recovered.stdout);
    ensure!(recovered.status.code() == Some(1), "{recovered:?}");
    assert_contains(&said, &["not undone yet, stasis tries again"]);
    Ok(())
}

fn nothing_is_left_to_recover(stasis: &StasisHost) -> Result<()> {
    let all = [PROGRAM, "recover", "--json"];
    let none = stasis.run_for_text(&all)?;
    ensure!(listed(none.as_bytes())?.is_empty(), "{none}");
    ensure!(stasis.run_for_text(&all[..2])? == "nothing to recover");
    let wrong = stasis
        .command(PROGRAM)
        .args(["recover", "wrong"])
        .output()?;
    let said = String::from_utf8_lossy(&wrong.stderr);
    ensure!(wrong.status.code() == Some(2), "{said}");
    assert_contains(&said, &["there is no container wrong", "[no-container]"]);
    Ok(())
}

/// The caller resumes its paused container, as containerd does; a later recovery does not pause it.
pub(super) fn of_both_while_paused(here: &Killed<'_>) -> Result<()> {
    here.counter.pause()?;
    let (mut operation, runtime) = here.held("get-state", || here.checkpoint())?;
    here.stasis.kill_keepers()?;
    kill(runtime, Signal::SIGKILL)?;
    operation.wait()?;
    here.let_go()?;
    here.counter.resume()?;
    here.stasis.run(&[PROGRAM, "recover"])?;
    here.status_is("running")
}
