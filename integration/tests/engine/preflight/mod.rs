//! Blockers of checkpoints and restores are refused before anything is changed, with a reason and a
//! way out, unless the administrator allows them; `stasis check` reports them without a checkpoint.

mod as_a_checkpoint;
mod blockers;
mod by_criu;
mod check;

use anyhow::Result;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(all_cases: sid, trixie_v2);

mod what_criu_does_not_dump {
    stasis_integration::on_hosts!(super::without_gpu: sid, trixie_v2);
}

fn without_gpu(kind: HostKind) -> Result<()> {
    by_criu::what_criu_does_not_dump_is_refused(&StasisHost::with_containerd(kind)?)
}

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    blockers::held_files_are_refused(stasis)?;
    blockers::several_blockers_are_named_together(stasis)?;
    blockers::io_uring_is_refused(stasis)?;
    blockers::a_plain_neighbour_with_an_nvidia_device_is_refused(stasis)?;
    blockers::managed_memory_is_refused(stasis)?;
    blockers::nccl_ranks_are_refused_unless_they_share_nothing(stasis)?;
    blockers::ranks_beside_another_program_are_refused(stasis)?;
    blockers::mig_is_refused(stasis)?;
    blockers::a_frozen_container_is_refused_and_stays_frozen(stasis)?;
    check::a_check_says_what_is_in_the_way_or_that_nothing_is(stasis)?;
    as_a_checkpoint::a_check_asks_what_a_checkpoint_asks(stasis)
}

/// Starts a container that runs this in a shell. Returns it with its first answer.
fn start<'l>(
    stasis: &'l StasisHost,
    id: &str,
    script: &str,
    port: u16,
) -> Result<(Bundle<'l>, String)> {
    let bundle = Bundle::make(stasis, id, &["/bin/sh", "-c", script])?;
    bundle.run()?;
    let answer = stasis.ask_until_up(port)?;
    Ok((bundle, answer))
}

/// Runs `stasis check` with options. Returns its exit code and its output.
fn check(stasis: &StasisHost, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = stasis.command(PROGRAM);
    let output = command.arg("check").args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}
