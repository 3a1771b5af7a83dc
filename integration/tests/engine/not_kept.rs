//! Properties that CRIU does not keep: a container has them again, whichever call restores it.

use std::fs;

use anyhow::{Context, Result};
use serde_json::json;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::on_hosts;

on_hosts!(they_come_back: sid_v2, trixie);

/// A caller with less than the usual priorities, all of which its children inherit.
const CALLER: &str = "/usr/local/bin/nice-caller";
/// The image's file with the properties.
const FACTS: &str = "good/stasis-not-kept.img";

fn they_come_back(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    let nice = "taskset -c 0 ionice -c 3 choom -n 300 --";
    let script = format!("#!/bin/sh\nexec {nice} {RUNTIME} \"$@\"\n");
    stasis.script(CALLER, &script)?;
    let threads = Bundle::make(
        stasis,
        "threads",
        &["/bin/kept", "10005", "threads", "timer", "segment"],
    )?;
    threads.comes_up(10005, "1 ok")?;
    threads.checkpoint("good", &[])?;
    threads.delete()?;
    let threads = &threads.through(CALLER);
    threads.restore("good")?;
    assert_eq!(stasis.ask(10005)?.as_deref(), Some("2 ok"));
    threads.delete()?;
    assert!(stasis.operation("restore").is_err(), "nothing to note");
    what_cannot_come_back_is_noted(stasis, threads)?;
    of_a_gpu(stasis)?;
    an_alarm_that_is_pending_is_noted(stasis)?;
    stasis.set(&stasis.low_level, "restore.at_create = \"/images\"\n")?;
    threads.begin_with("threads-good")?;
    threads.create()?;
    threads.start()?;
    assert_eq!(stasis.ask_until_up(10005)?, "2 ok");
    threads.delete()?;
    stasis.nothing_to_put_right()
}

/// The container goes on all the same.
fn what_cannot_come_back_is_noted(stasis: &StasisHost, threads: &Bundle<'_>) -> Result<()> {
    let path = threads.image_path(FACTS);
    let good = fs::read_to_string(&path)?;
    let mut facts: serde_json::Value = serde_json::from_str(&good)?;
    let of_threads = facts["threads"].as_object_mut().context("no threads")?;
    assert_eq!(of_threads.len(), 2, "{good}");
    for thread in of_threads.values_mut() {
        thread["cpus"] = "1023".into();
    }
    let cases = [
        (facts.to_string(), "2 of the threads do not have that"),
        ("{}".to_owned(), "was not put back (stasis-not-kept.img)"),
    ];
    for (text, note) in cases {
        fs::write(&path, text)?;
        threads.restore("good")?;
        assert!(stasis.ask(10005)?.is_some());
        let notes = stasis.operation("restore")?["notes"].to_string();
        assert_contains(&notes, &[note]);
        threads.delete()?;
    }
    Ok(fs::write(&path, good)?)
}

/// Only the process itself could set the alarm again.
fn an_alarm_that_is_pending_is_noted(stasis: &StasisHost) -> Result<()> {
    let alarm = Bundle::make(stasis, "alarm", &["/bin/kept", "10006", "alarm"])?;
    alarm.comes_up(10006, "1 ok")?;
    alarm.checkpoint("good", &[])?;
    alarm.delete()?;
    alarm.restore("good")?;
    assert_eq!(stasis.ask(10006)?.as_deref(), Some("2 ok"));
    let notes = stasis.operation("restore")?["notes"].to_string();
    assert_contains(&notes, &["1 of the processes have a timer (setitimer)"]);
    alarm.delete()
}

/// With the driver at work on the process, before the dump and after it.
fn of_a_gpu(stasis: &StasisHost) -> Result<()> {
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "32", "10000"])?;
    memory.comes_up(10000, "ok 0")?;
    let facts = |change: &str| {
        let process = format!("/proc/{}", memory.pid()?);
        let script = format!(
            "cd {process} && {change} grep Cpus_allowed_list status && \
             ionice -p $(basename {process}) && cat timerslack_ns oom_score_adj"
        );
        stasis.run_for_text(&["bash", "-c", &script])
    };
    let before = facts(
        "pid=$(basename $PWD) && taskset -pc 0 $pid >/dev/null && ionice -c 2 -n 7 -p $pid && \
         echo 123456 >timerslack_ns && echo 200 >oom_score_adj &&",
    )?;
    assert_contains(&before, &["best-effort: prio 7", "123456", "200"]);
    memory.checkpoint("good", &[])?;
    memory.delete()?;
    memory.restore("good")?;
    assert_eq!(facts("")?, before);
    assert_eq!(stasis.ask(10000)?.as_deref(), Some("ok 1"));
    assert_eq!(stasis.operation("restore")?["notes"], json!(null));
    memory.delete()
}
