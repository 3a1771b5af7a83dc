//! Processes that were started in a container by `exec`: CRIU dumps the process tree of the
//! container's first process, and they are not in it. They use the GPU all the same, go on after a
//! checkpoint that leaves the container running, and end with the container.

mod image;
mod left_running;
mod settings;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

/// The ports of the container's workload, and of the exec session's.
const PORT: u16 = 10000;
const EXEC_PORT: u16 = 10001;

on_hosts!(all_cases: trixie, sid_v2, crun_on_sid_v2);

type Case = fn(&StasisHost) -> Result<()>;

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let cases: [(&str, Case); 8] = [
        ("cuda", image::what_was_exec_d_with_cuda_is_in_no_image),
        ("memory", image::what_was_exec_d_with_memory_is_in_no_image),
        ("plain", image::a_container_without_cuda_restores),
        ("only", image::cuda_in_the_exec_session_alone),
        ("left", left_running::left_running_both_go_on),
        ("paused", left_running::a_paused_container_gets_both_back),
        ("refused", settings::the_settings_may_refuse),
        ("late", settings::the_settings_refuse_one_that_starts_later),
    ];
    for (name, case) in cases {
        case(stasis).context(name)?;
        stasis.inject("")?;
        stasis.set(&stasis.low_level, "")?;
    }
    Ok(())
}

mod podman {
    stasis_integration::on_hosts!(super::podman_restores_what_was_not_exec_d: sid_v2);
}

fn podman_restores_what_was_not_exec_d(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::of(kind)?;
    stasis.podman_load()?;
    stasis.podman_run("job", &[], &["/bin/counter", "10000"])?;
    assert_eq!(stasis.ask_until_up(PORT)?, "101");
    stasis.podman(&["exec", "-d", "job", "/bin/memcheck", "16", "10001"])?;
    assert_eq!(stasis.ask_until_up(EXEC_PORT)?, "ok 0");
    stasis.podman_container(&["checkpoint"], "job")?;
    stasis.podman_container(&["restore"], "job")?;
    answers(&stasis, "102", None)?;
    stasis.podman_remove("job")
}

/// Starts a container that runs this command.
fn start<'l>(stasis: &'l StasisHost, id: &str, command: &[&str]) -> Result<Bundle<'l>> {
    let bundle = Bundle::make(stasis, id, command)?;
    bundle.suit_crun()?;
    bundle.run()?;
    stasis.ask_until_up(PORT)?;
    Ok(bundle)
}

/// Runs a command by `exec`, with the tag "session" for faults. Returns its first answer.
fn exec(stasis: &StasisHost, bundle: &Bundle<'_>, command: &[&str]) -> Result<String> {
    let options = [
        "exec",
        "--detach",
        "--env",
        "STASIS_TAG=session",
        &bundle.id,
    ];
    let status = bundle.runtime(&options).args(command).status()?;
    ensure!(status.success(), "exec: {status}");
    stasis.ask_until_up(EXEC_PORT)
}

fn counters<'l>(stasis: &'l StasisHost, id: &str) -> Result<Bundle<'l>> {
    let bundle = start(stasis, id, &["/bin/counter", "10000"])?;
    assert_eq!(exec(stasis, &bundle, &["/bin/counter", "10001"])?, "101");
    Ok(bundle)
}

fn answers(stasis: &StasisHost, init: &str, session: Option<&str>) -> Result<()> {
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some(init));
    assert_eq!(stasis.ask(EXEC_PORT)?.as_deref(), session);
    Ok(())
}

fn notes(stasis: &StasisHost) -> Result<String> {
    Ok(stasis.operation("checkpoint")?["notes"].to_string())
}
