//! Containers that ask for a checkpoint when they are stopped: at their caller's signal they are
//! saved and ended, and the next one goes on; if they cannot be saved they get the signal.

mod beside;
mod killed;
mod lives;
mod pod;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::saved_at_stop::SETTINGS;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::load;
use stasis_integration::on_hosts;

on_hosts!(all_cases: sid_v2, trixie);

/// A first process that SIGTERM ends; without a handler it would ignore it (pid_namespaces(7)).
const ENDS_AT_TERM: &str = "trap 'exit 7' TERM; /bin/counter 10000 & while :; do wait $!; done";

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let job = &Bundle::make(stasis, "job", &["/bin/sh", "-c", ENDS_AT_TERM])?;
    let cases: [(&str, Case); 14] = [
        ("saved", it_is_saved_and_goes_on),
        ("second", a_second_signal_is_not_kept_for_the_next_one),
        ("again", the_next_one_of_its_id_is_saved_as_well),
        ("beside", beside::it_waits_for_another_checkpoint),
        ("clock", lives::the_clock_was_ahead_at_an_earlier_one),
        (
            "cold",
            lives::a_life_that_began_cold_takes_nothing_from_the_one_before,
        ),
        ("failed", what_cannot_be_saved_gets_the_signal),
        ("grace", sigkill_cuts_it_off),
        ("killed", a_checkpoint_that_is_killed_is_no_way_to_stay),
        (
            "stopper",
            killed::who_is_killed_beside_it_takes_nothing_along,
        ),
        ("sealed", killed::the_next_one_waits_for_a_keeper_that_seals),
        (
            "stalled",
            killed::the_next_one_of_its_id_does_not_wait_for_ever,
        ),
        ("without", killed::one_that_asks_for_no_image_does_not_wait),
        ("pod", pod::it_is_saved_below_its_namespace),
    ];
    for (name, case) in cases {
        stasis.set(&stasis.low_level, SETTINGS)?;
        job.change(|spec| {
            spec["annotations"] = json!({
                "io.stasis.checkpoint": "on-term",
                "io.stasis.checkpoint.key": format!("keys/{name}"),
                "io.stasis.restore": format!("latest:keys/{name}"),
            });
        })?;
        case(stasis, job).context(name)?;
        stasis.nobody_is_stopped().context(name)?;
        assert_eq!(job.status()?, "", "{name}");
        stasis.nothing_to_put_right().context(name)?;
    }
    without_a_gpu(stasis)
}

fn begin(stasis: &StasisHost, job: &Bundle<'_>, answer: &str) -> Result<()> {
    job.create()?;
    job.start()?;
    assert_eq!(stasis.ask_until_up(10000)?, answer);
    Ok(())
}

/// Waits for the end of the first process, as engines do.
fn ended(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    job.until_ended()?;
    assert!(stasis.is_silent(10000)?);
    Ok(())
}

/// Returns the notes of a stop that is over.
fn notes(stasis: &StasisHost) -> Result<Value> {
    stasis.nobody_is_stopped()?;
    Ok(stasis.operation("stop")?["notes"].take())
}

fn images(stasis: &StasisHost, key: &str) -> Result<usize> {
    let names = stasis.run_for_text(&["ls", &format!("/images/{key}")])?;
    Ok(names.lines().count())
}

/// The next container is created as soon as the first process has ended: it waits for the image.
fn it_is_saved_and_goes_on(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let times = load::asked(4, 50);
    for time in 0..times {
        let answer = (101 + time).to_string();
        begin(stasis, job, &answer)?;
        job.kill("TERM")?;
        ended(stasis, job)?;
        job.delete()?;
        assert_eq!(notes(stasis)?, Value::Null, "{answer}");
        let kept = usize::min(time + 1, 2);
        assert_eq!(images(stasis, "keys/saved")?, kept, "{answer}");
    }
    begin(stasis, job, &(101 + times).to_string())?;
    job.kill("KILL")?;
    job.delete()
}

fn a_second_signal_is_not_kept_for_the_next_one(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    begin(stasis, job, "101")?;
    stasis.hold_driver("checkpoint job", "second")?;
    job.kill("TERM")?;
    stasis.until_driver_is_called()?;
    job.kill("15")?;
    stasis.let_driver_go("second")?;
    ended(stasis, job)?;
    job.delete()?;
    stasis.inject("")?;
    begin(stasis, job, "102")?;
    assert_eq!(images(stasis, "keys/second")?, 1);
    job.delete()
}

/// The process that stops the first container is held after its end, when another one has its id.
fn the_next_one_of_its_id_is_saved_as_well(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    begin(stasis, job, "101")?;
    stasis.hold_driver("checkpoint job", "again")?;
    job.kill("TERM")?;
    stasis.until_driver_is_called()?;
    let signal = |name: &str| stasis.run(&["pkill", name, "-x", "stasis-stop"]);
    signal("-STOP")?;
    stasis.let_driver_go("again")?;
    ended(stasis, job)?;
    stasis.inject("")?;
    // runc removes the container that it has checkpointed.
    wait_until_clear(|| Ok(Some(job.status()?).filter(|status| !status.is_empty())))?;
    job.begin_with("/images/none")?;
    begin(stasis, job, "101")?;
    job.kill("TERM")?;
    signal("-CONT")?;
    ended(stasis, job)?;
    job.delete()?;
    assert_eq!(notes(stasis)?, Value::Null);
    assert_eq!(images(stasis, "keys/again")?, 2);
    Ok(())
}

fn what_cannot_be_saved_gets_the_signal(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    begin(stasis, job, "101")?;
    stasis.inject("checkpoint job error:801 1")?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    let why = notes(stasis)?.to_string();
    assert_contains(&why, &["SIGTERM was delivered", "801"]);
    assert_eq!(images(stasis, "keys/failed")?, 0);
    job.delete()?;
    stasis.inject("")?;
    job.create()?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    assert_contains(&notes(stasis)?.to_string(), &["SIGTERM was delivered"]);
    job.delete()?;
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    begin(stasis, job, "101")?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    assert_contains(&notes(stasis)?.to_string(), &["restore.keep_at_stop"]);
    job.delete()
}

/// SIGKILL in a call of the driver, and in CRIU.
fn sigkill_cuts_it_off(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    for step in ["driver", "criu"] {
        begin(stasis, job, "101")?;
        match step {
            "driver" => stasis.hold_driver("checkpoint job", "grace")?,
            _ => stasis.hold_criu("pre-dump")?,
        }
        job.kill("TERM")?;
        match step {
            "driver" => stasis.until_driver_is_called()?,
            _ => stasis.until_criu_is_held()?,
        }
        job.kill("KILL")?;
        ended(stasis, job)?;
        match step {
            "driver" => stasis.let_driver_go("grace")?,
            _ => stasis.let_criu_go()?,
        }
        assert_contains(&notes(stasis)?.to_string(), &["ended before"]);
        assert_eq!(images(stasis, "keys/grace")?, 0, "{step}");
        job.delete()?;
        stasis.inject("")?;
    }
    Ok(())
}

fn a_checkpoint_that_is_killed_is_no_way_to_stay(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    begin(stasis, job, "101")?;
    stasis.hold_driver("checkpoint job", "killed")?;
    job.kill("TERM")?;
    stasis.until_driver_is_called()?;
    stasis.run(&["pkill", "-KILL", "-f", "checkpoint --image-path"])?;
    stasis.let_driver_go("killed")?;
    ended(stasis, job)?;
    assert_contains(
        &notes(stasis)?.to_string(),
        &["SIGTERM was delivered", "signal"],
    );
    assert_eq!(images(stasis, "keys/killed")?, 0);
    stasis.inject("")?;
    job.delete()
}

/// Saved under its id, since it names no key, and by another signal; a reload is no stop.
fn without_a_gpu(stasis: &StasisHost) -> Result<()> {
    let script = "trap : HUP; : >/ready; while :; do /bin/pause & wait $!; done";
    let plain = &Bundle::make(stasis, "plain", &["/bin/sh", "-c", script])?;
    plain.change(|spec| spec["linux"]["devices"] = json!([]))?;
    plain.annotate("io.stasis.checkpoint", "on-stop")?;
    plain.begin_with("latest:plain")?;
    for cold in [true, false] {
        plain.create()?;
        let warned = plain.warnings()?;
        assert_eq!(warned.contains("started cold"), cold, "{warned}");
        plain.start()?;
        plain.until_ready()?;
        plain.kill("HUP")?;
        assert_eq!(plain.status()?, "running");
        plain.kill("INT")?;
        ended(stasis, plain)?;
        plain.delete()?;
        assert_eq!(notes(stasis)?, Value::Null);
        stasis.has_whole_images("/images/plain")?;
    }
    stasis.nothing_to_put_right()
}
