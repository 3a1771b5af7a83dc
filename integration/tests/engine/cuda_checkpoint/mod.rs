//! `cuda-checkpoint`, as scripts, operators and CRIU's CUDA plugin call it.

mod container;
mod criu_plugin;
mod gpus;
mod process;

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(all_cases: trixie, sid_v2);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let counter = Bundle::make(stasis, "counter", &["/bin/counter", "10200"])?;
    counter.run()?;
    stasis.ask_until_up(10200)?;
    let cases: [(&str, Case); 5] = [
        ("toggle", process::a_toggle_frees_the_gpu_and_gives_it_back),
        (
            "steps",
            process::each_step_says_nothing_and_wrong_ones_say_why,
        ),
        (
            "failure",
            process::a_toggle_that_fails_lets_the_process_go_on,
        ),
        ("still", process::what_cannot_answer_is_refused_at_once),
        ("plugin", criu_plugin::criu_s_plugin_gets_what_it_asks_for),
    ];
    for (name, case) in cases {
        case(stasis, &counter).context(name)?;
        assert_eq!(
            stdout(stasis, &["--get-state", "-p", &pid(&counter)?])?,
            "running\n"
        );
    }
    counter.delete()?;
    container::a_container_is_toggled_as_a_whole(stasis)?;
    container::ranks_are_locked_together_or_refused(stasis)?;
    gpus::a_suspended_container_is_not_lost_for_want_of_room(stasis)?;
    gpus::another_gpu_takes_the_place(stasis)
}

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

fn pid(bundle: &Bundle<'_>) -> Result<String> {
    Ok(bundle.pid()?.to_string())
}

/// Returns the program's standard output; it has to succeed without writing to standard error.
fn stdout(stasis: &StasisHost, arguments: &[&str]) -> Result<String> {
    let output = stasis.command(CUDA_CHECKPOINT).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {errors}");
    ensure!(errors.is_empty(), "{arguments:?} wrote {errors}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs the program, which has to succeed and write nothing.
fn succeeds(stasis: &StasisHost, arguments: &[&str]) -> Result<()> {
    assert_eq!(stdout(stasis, arguments)?, "", "{arguments:?}");
    Ok(())
}

/// Runs the program, which has to end with 1 and these parts on standard error.
fn fails(stasis: &StasisHost, arguments: &[&str], parts: &[&str]) -> Result<()> {
    let output = stasis.command(CUDA_CHECKPOINT).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert_contains(&errors, parts);
    Ok(())
}

fn counts_on(stasis: &StasisHost) -> Result<()> {
    let count = || -> Result<u32> { Ok(stasis.ask(10200)?.context("no answer")?.parse()?) };
    let before = count()?;
    assert_eq!(count()?, before + 1);
    Ok(())
}
