//! Kind and state of failures: in the runtime's log, in `operations.log`, in `--json`, and as the
//! code that containerd's clients get.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_engine::error::kind::{Kind, State};
use stasis_integration::client::containerd::{Code, Containerd, code};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::failure::Failure;
use stasis_integration::container::gpu_task::{in_host, into};
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

const PORT: u16 = 10000;
const COUNTER: &str = "exec /bin/counter 10000";
const PROGRAM: &str = "/usr/local/bin/stasis";

on_hosts!(in_host [of_bundles, of_tasks]: sid);

fn of_bundles(stasis: &StasisHost, _client: &Containerd) -> Result<()> {
    let subject = Bundle::make(stasis, "subject", &["/bin/sh", "-c", COUNTER])?;
    a_refusal_has_changed_nothing(stasis, &subject)?;
    a_checkpoint_is_undone(stasis, &subject)?;
    a_process_is_lost_and_its_image_is_complete(stasis, &subject)?;
    a_restore_leaves_nothing(stasis, &subject)?;
    a_question_without_an_answer_has_them_too(stasis)
}

/// Checks that the runtime's log and `operations.log` agree on the last operation's failure.
fn assert_failed(
    stasis: &StasisHost,
    subject: &Bundle<'_>,
    verb: &str,
    (kind, state): (Kind, State),
) -> Result<Failure> {
    let reported = subject.failure()?.context("nothing is in the log")?;
    let logged = Failure::of(&stasis.operation(verb)?)?;
    for failure in [&reported, &logged] {
        assert_eq!(failure.kind, Some(kind), "{failure:?}");
        assert_eq!(failure.state, Some(state), "{failure:?}");
        let named = format!(" [{kind}]: ");
        assert!(failure.message.contains(&named), "{failure:?}");
    }
    assert_eq!(reported.image_complete, logged.image_complete);
    Ok(reported)
}

fn start(stasis: &StasisHost, subject: &Bundle<'_>) -> Result<()> {
    subject.run()?;
    stasis.ask_until_up(PORT)?;
    Ok(())
}

fn a_refusal_has_changed_nothing(stasis: &StasisHost, subject: &Bundle<'_>) -> Result<()> {
    start(stasis, subject)?;
    let pid = subject.pid()?.to_string();
    stasis.host.stop(&pid)?;
    subject.checkpoint_fails("refused", &[])?;
    stasis.run(&["kill", "-CONT", &pid])?;
    let expected = (Kind::ProcessStopped, State::Unharmed);
    assert_failed(stasis, subject, "checkpoint", expected)?;
    subject.delete()
}

fn a_checkpoint_is_undone(stasis: &StasisHost, subject: &Bundle<'_>) -> Result<()> {
    start(stasis, subject)?;
    stasis.inject("checkpoint subject error:801")?;
    subject.checkpoint_fails("undone", &["--leave-running"])?;
    stasis.inject("")?;
    let expected = (Kind::Unsupported, State::Unharmed);
    let failure = assert_failed(stasis, subject, "checkpoint", expected)?;
    assert!(!failure.image_complete, "{failure:?}");
    assert_eq!(subject.status()?, "running");
    subject.delete()
}

fn a_process_is_lost_and_its_image_is_complete(
    stasis: &StasisHost,
    subject: &Bundle<'_>,
) -> Result<()> {
    start(stasis, subject)?;
    // The driver brings no process back after a restore that had no room.
    stasis.inject("restore subject error:2")?;
    subject.checkpoint_fails("lost", &["--leave-running"])?;
    stasis.inject("")?;
    let expected = (Kind::NoGpuMemory, State::Lost);
    let failure = assert_failed(stasis, subject, "checkpoint", expected)?;
    assert!(failure.image_complete, "{failure:?}");
    subject.delete()?;
    subject.restore("lost")?;
    subject.delete()
}

fn a_restore_leaves_nothing(stasis: &StasisHost, subject: &Bundle<'_>) -> Result<()> {
    stasis.inject("unlock subject error:999")?;
    subject.restore_fails("lost")?;
    stasis.inject("")?;
    let expected = (Kind::Driver, State::Ended);
    assert_failed(stasis, subject, "restore", expected)?;
    fs::write(subject.image_path("lost/stasis.json"), "{")?;
    subject.restore_fails("lost")?;
    let expected = (Kind::ImageDamaged, State::Unharmed);
    assert_failed(stasis, subject, "restore", expected)?;
    Ok(())
}

fn a_question_without_an_answer_has_them_too(stasis: &StasisHost) -> Result<()> {
    let mut command = stasis.command(PROGRAM);
    let output = command.args(["check", "--json", "nobody"]).output()?;
    assert_eq!(output.status.code(), Some(2));
    let failure = Failure::of(&serde_json::from_slice(&output.stdout)?)?;
    assert_eq!(failure.kind, Some(Kind::NoContainer), "{failure:?}");
    assert_eq!(failure.state, Some(State::Unharmed), "{failure:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.ends_with(" [no-container]\n"), "{stderr}");
    Ok(())
}

/// The Go shim has no code for a failure; a refusal that the caller can do something about has one.
fn of_tasks(stasis: &StasisHost, client: &Containerd) -> Result<()> {
    let blocked = format!("mkdir -p /dev; : >/dev/gdrdrv; exec 9</dev/gdrdrv; {COUNTER}");
    stasis.start_gpu_task(client, "blocked", &[], &["/bin/sh", "-c", &blocked])?;
    stasis.ask_until_up(PORT)?;
    let refused = client.checkpoint("blocked", &into("/images/blocked"));
    assert_eq!(code(&refused), Code::FailedPrecondition, "{refused:?}");
    let checked = stasis
        .command(PROGRAM)
        .args(["check", "--json", "blocked"])
        .output()?;
    let report: Value = serde_json::from_slice(&checked.stdout)?;
    assert_eq!(report["kind"], "blocked", "{report}");
    stasis.ctr_remove("blocked")?;

    stasis.start_gpu_task(client, "faulty", &[], &["/bin/sh", "-c", COUNTER])?;
    stasis.ask_until_up(PORT)?;
    stasis.inject("checkpoint faulty error:801")?;
    let failed = client.checkpoint("faulty", &into("/images/faulty"));
    assert_eq!(code(&failed), Code::Unknown, "{failed:?}");
    stasis.inject("")?;
    stasis.ctr_remove("faulty")
}
