//! The process that stops a container is killed, or stands still.

use std::fs::File;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::{wait_until_clear, wait_within};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::saved_at_stop::SETTINGS;
use stasis_integration::host::installed::StasisHost;

use super::{ENDS_AT_TERM, begin, ended, images, notes};

/// The command line of the checkpoint of a stop.
pub(super) const CHECKPOINT: &str = "^/proc/self/exe .*checkpoint --image-path";

/// The process that would deliver the signal is killed before it has begun, and at each step of the
/// checkpoint, which continues alone: a second signal does not cut it off, and the next container
/// waits for it.
pub(super) fn who_is_killed_beside_it_takes_nothing_along(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    begin(stasis, job, "101")?;
    let earlier = behind_another(stasis)?;
    job.kill("TERM")?;
    kill_the_stopper(stasis)?;
    drop(earlier);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("102"));
    let steps = ["lock", "checkpoint", "dump", "ended"];
    for (step, answer) in steps.into_iter().zip(103..) {
        match step {
            "lock" | "checkpoint" => stasis.hold_driver(&format!("{step} job"), "stopper")?,
            _ => stasis.hold_criu("pre-dump")?,
        }
        job.kill("TERM")?;
        match step {
            "lock" | "checkpoint" => stasis.until_driver_is_called()?,
            _ => stasis.until_criu_is_held()?,
        }
        if step == "ended" {
            signal_the_checkpoint(stasis, "-STOP")?;
            stasis.let_criu_go()?;
            ended(stasis, job)?;
        }
        kill_the_stopper(stasis)?;
        match step {
            "ended" => signal_the_checkpoint(stasis, "-CONT")?,
            // The container has not ended yet: its caller sends the signal again.
            _ => job.kill("TERM")?,
        }
        match step {
            "lock" | "checkpoint" => stasis.let_driver_go("stopper")?,
            "dump" => stasis.let_criu_go()?,
            _ => {}
        }
        ended(stasis, job)?;
        stasis.inject("")?;
        job.delete()?;
        begin(stasis, job, &answer.to_string()).context(step)?;
    }
    // Including the empty directory of the checkpoint that never began.
    assert_eq!(images(stasis, "keys/stopper")?, 5);
    job.kill("TERM")?;
    ended(stasis, job)?;
    job.delete()?;
    assert_eq!(notes(stasis)?, Value::Null);
    // With that directory.
    assert_eq!(images(stasis, "keys/stopper")?, 3);
    Ok(())
}

/// Pretends that an earlier container of this id is still being stopped, until the file is dropped.
fn behind_another(stasis: &StasisHost) -> Result<File> {
    let beside = stasis.run_for_text(&["bash", "-ec", "cd /run/stasis/stopping/*; pwd"])?;
    let path = stasis.path(format!("{}/job.1000000-1", beside.trim()));
    let file = File::create(path)?;
    file.lock()?;
    Ok(file)
}

pub(super) fn kill_the_stopper(stasis: &StasisHost) -> Result<()> {
    wait_until_clear(|| {
        let killed = stasis.run(&["pkill", "-KILL", "-x", "stasis-stop"]);
        Ok(killed.err().map(|error| error.to_string()))
    })?;
    wait_until_clear(|| {
        let left = stasis.run_for_text(&["pgrep", "-x", "stasis-stop"]);
        Ok(left.ok())
    })
}

pub(super) fn signal_the_checkpoint(stasis: &StasisHost, signal: &str) -> Result<()> {
    let sent = stasis.run(&["pkill", signal, "-f", CHECKPOINT]);
    sent.map(drop)
}

/// Who makes the image is killed with its checkpoint during the dump, so that the keeper seals it:
/// no one has the key's lock then, and an earlier image is there.
pub(super) fn the_next_one_waits_for_a_keeper_that_seals(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    begin(stasis, job, "101")?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    job.delete()?;
    begin(stasis, job, "102")?;
    stasis.hold_criu("pre-dump")?;
    job.kill("TERM")?;
    stasis.until_criu_is_held()?;
    kill_the_stopper(stasis)?;
    signal_the_checkpoint(stasis, "-KILL")?;
    let keeper = |signal| stasis.run(&["pkill", signal, "-x", "stasis-keeper"]);
    keeper("-STOP")?;
    stasis.let_criu_go()?;
    ended(stasis, job)?;
    let sealed = sealed_by_another(stasis)?;
    let next = Bundle::make(stasis, "next", &["/bin/sh", "-c", ENDS_AT_TERM])?;
    next.begin_with("latest:keys/sealed")?;
    let mut create = next.begin_create()?;
    let looks = wait_within(Duration::from_secs(2), || {
        let over = create.try_wait()?;
        Ok(over.is_none().then(|| "it waits".to_owned()))
    });
    assert!(looks.is_err(), "{}", next.warnings()?);
    drop(sealed);
    keeper("-CONT")?;
    assert!(create.wait()?.success(), "{:?}", next.message()?);
    next.start()?;
    assert_eq!(stasis.ask_until_up(10000)?, "103", "{}", next.warnings()?);
    next.kill("KILL")?;
    next.delete()?;
    // Its stop removes what the killed one has left.
    begin(stasis, job, "103")?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    job.delete()
}

/// Pretends to be the keeper, until the file is dropped.
fn sealed_by_another(stasis: &StasisHost) -> Result<File> {
    let new = "ls -d /images/keys/sealed/*/.stasis-new";
    let new = stasis.run_for_text(&["bash", "-c", new])?;
    let new = File::open(stasis.path(new.trim()))?;
    // Once CRIU has ended.
    new.lock()?;
    Ok(new)
}

/// The first container's checkpoint stands still once that container has ended.
pub(super) fn the_next_one_of_its_id_does_not_wait_for_ever(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    begin(stasis, job, "101")?;
    ends_before_its_seal(stasis, job)?;
    stasis.set(
        &stasis.low_level,
        &format!("{SETTINGS}deadlines.stalled_s = 1\n"),
    )?;
    job.begin_with("/images/none")?;
    begin(stasis, job, "101")?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    let why = notes_of_the_last(stasis)?;
    signal_the_checkpoint(stasis, "-CONT")?;
    assert_contains(&why, &["SIGTERM was delivered"]);
    job.delete()?;
    assert_eq!(notes(stasis)?, Value::Null);
    assert_eq!(images(stasis, "keys/stalled")?, 1);
    job.begin_with("latest:keys/stalled")?;
    begin(stasis, job, "102")?;
    job.kill("KILL")?;
    job.delete()
}

/// The low-level runtime does not know the first container any more, and its image is not on disk.
/// A checkpoint that is killed then, when another container has the id, is completed all the same.
pub(super) fn one_that_asks_for_no_image_does_not_wait(
    stasis: &StasisHost,
    job: &Bundle<'_>,
) -> Result<()> {
    job.change(|spec| {
        let annotations = spec["annotations"].as_object_mut();
        annotations.and_then(|all| all.remove("io.stasis.restore"));
    })?;
    stasis.set(
        &stasis.low_level,
        &format!("{SETTINGS}deadlines.stalled_s = 3600\n"),
    )?;
    begin(stasis, job, "101")?;
    ends_before_its_seal(stasis, job)?;
    begin(stasis, job, "101")?;
    kill_the_stopper(stasis)?;
    signal_the_checkpoint(stasis, "-KILL")?;
    wait_until_clear(|| {
        let whole = stasis.has_whole_images("/images/keys/without");
        Ok(whole.err().map(|error| format!("{error:#}")))
    })?;
    assert_eq!(images(stasis, "keys/without")?, 1);
    assert_eq!(stasis.ask_until_up(10000)?, "102");
    // Its stop removes the lock of the killed one.
    stasis.set(&stasis.low_level, SETTINGS)?;
    job.kill("TERM")?;
    ended(stasis, job)?;
    job.delete()
}

/// Stops it; its checkpoint stands still once the container has ended.
fn ends_before_its_seal(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    stasis.hold_criu("pre-dump")?;
    job.kill("TERM")?;
    stasis.until_criu_is_held()?;
    signal_the_checkpoint(stasis, "-STOP")?;
    stasis.let_criu_go()?;
    ended(stasis, job)?;
    wait_until_clear(|| Ok(Some(job.status()?).filter(|status| !status.is_empty())))
}

/// Returns the notes of a stop while another one goes on.
fn notes_of_the_last(stasis: &StasisHost) -> Result<String> {
    let mut notes = String::new();
    wait_until_clear(|| {
        notes = match stasis.operation("stop") {
            Ok(stop) => stop["notes"].to_string(),
            Err(error) => error.to_string(),
        };
        Ok((!notes.contains("delivered")).then(|| notes.clone()))
    })?;
    Ok(notes)
}
