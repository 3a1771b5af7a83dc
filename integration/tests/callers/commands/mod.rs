//! The operator's commands, on containers of several engines at once.

mod documented;
mod gc;
mod golden;
mod images;
mod inspect;
mod log;
mod metrics;
mod pipes;
mod ps;
mod suspend;
mod tables;
mod terminal;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::ROOT;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::{needs, on_hosts};

on_hosts!(all_commands: trixie, sid_v2);

/// The counters: each goes on counting at its port.
const COUNTERS: [(&str, u16); 3] = [
    ("podman-job", 10001),
    ("ctr-job", 10000),
    ("docker-job", 10002),
];

fn all_commands(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(kind)?;
    let _docker = stasis.docker()?;
    stasis.podman_load()?;
    ps::without_containers_that_is_told(stasis)?;
    stasis.podman_run("podman-job", &[], &["/bin/counter", "10001"])?;
    stasis.ctr_run("ctr-job", &[], &["/bin/counter", "10000"])?;
    stasis.docker_run("docker-job", &[], &["/bin/counter", "10002"])?;
    stasis.ctr_run("idle", &[], &["/bin/pause"])?;
    for (_, port) in COUNTERS {
        stasis.ask_until_up(port)?;
    }
    ps::those_that_use_a_gpu_are_shown_by_name(stasis)?;
    ps::a_checkpoint_is_shown_and_foretells_the_next(stasis)?;
    suspend::several_are_suspended_and_resumed_at_once(stasis)?;
    suspend::what_fails_leaves_the_others_done(stasis)?;
    suspend::a_resume_waits_for_room(stasis)?;
    images::images_are_listed_and_verified(stasis)?;
    inspect::what_is_in_an_image_is_shown(stasis)?;
    inspect::an_unpacked_archive_tells_its_name(stasis)?;
    metrics::all_is_counted(stasis)?;
    metrics::they_are_written_to_a_file(stasis)?;
    metrics::board_and_alerts_ask_for_what_there_is(stasis)?;
    metrics::what_cannot_be_read_hides_nothing_else(stasis)?;
    log::operations_are_listed_and_drawn(stasis)?;
    log::some_are_chosen_and_what_chooses_none_is_refused(stasis)?;
    log::what_is_no_line_is_left_out(stasis)?;
    pipes::a_closed_pipe_ends_them_quietly(stasis)?;
    ps::who_does_not_answer_delays_nobody(stasis)?;
    ps::a_terminal_gets_colours_and_no_line_too_many(stasis)?;
    terminal::a_watch_draws_again_until_ctrl_c(stasis)?;
    terminal::ctrl_c_has_each_of_several_go_back(stasis)
}

/// Runs `stasis`. Returns its exit code, standard output and standard error.
pub(crate) fn run(
    stasis: &StasisHost,
    arguments: &[&str],
) -> Result<(Option<i32>, String, String)> {
    let output = stasis.command(PROGRAM).args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

/// Runs `stasis` with `--json`, which has to answer with a list.
pub(crate) fn json(stasis: &StasisHost, arguments: &[&str]) -> Result<(Option<i32>, Vec<Value>)> {
    let (code, stdout, stderr) = run(stasis, &[arguments, &["--json"]].concat())?;
    Ok((code, listed(stdout.as_bytes()).context(stderr)?))
}

/// Has `stasis` find the containers of bundles, as if they were in runc's own root directory.
fn as_one_of_runc(stasis: &StasisHost) -> Result<()> {
    stasis.run(&["ln", "-s", ROOT, "/run/runc"]).map(drop)
}

/// Splits each line of a table into its cells.
fn cells<'t>(table: &'t str) -> Vec<Vec<&'t str>> {
    let cells = |line: &'t str| {
        let cells = line.split("  ").map(str::trim);
        cells.filter(|cell| !cell.is_empty()).collect()
    };
    table.lines().map(cells).collect()
}

pub(crate) fn counts_on(stasis: &StasisHost, port: u16) -> Result<()> {
    let count = || -> Result<u32> { Ok(stasis.ask(port)?.context("no answer")?.parse()?) };
    let before = count()?;
    assert_eq!(count()?, before + 1);
    Ok(())
}
