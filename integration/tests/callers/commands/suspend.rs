//! `stasis suspend` and `stasis resume`.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::host::installed::{PROGRAM, StasisHost};

use super::{COUNTERS, cells, counts_on, json, ps, run};

const NAMES: [&str; 3] = ["podman-job", "ctr-job", "docker-job"];

fn all(verb: &'static str) -> Vec<&'static str> {
    [&[verb], NAMES.as_slice()].concat()
}

pub(crate) fn several_are_suspended_and_resumed_at_once(stasis: &StasisHost) -> Result<()> {
    let (code, outcomes) = json(stasis, &all("suspend"))?;
    assert_eq!(code, Some(0), "{outcomes:?}");
    assert_eq!(stasis.gpu_descriptors()?, 0);
    for (outcome, name) in outcomes.iter().zip(NAMES) {
        assert_eq!(outcome["name"], name);
        assert_eq!(outcome["result"], "done");
        assert!(outcome["gpu_bytes"].as_u64() > Some(0), "{outcome}");
    }
    let (_, rows) = json(stasis, &["ps"])?;
    let (_, table, _) = run(stasis, &["ps"])?;
    for name in NAMES {
        let row = ps::named(&rows, name)?;
        assert_eq!(row["state"], "suspended");
        // Its GPU, and the memory that it needs to come back.
        assert_eq!(row["gpus"][0]["index"], 0);
        assert!(row["gpus"][0]["memory_bytes"].as_u64() > Some(0), "{row}");
        let is_suspended = |row: &Vec<&str>| row[0] == name && row[5] == "suspended";
        assert!(cells(&table).iter().any(is_suspended), "{table}");
    }
    let (code, outcomes) = json(stasis, &all("suspend"))?;
    assert_eq!(code, Some(0));
    assert!(outcomes.iter().all(|one| one["result"] == "already"));
    let dry_run = ["checkpoint", "ctr-job", "-R", "--dry-run"];
    let (_, stdout, _) = run(stasis, &dry_run)?;
    assert_contains(&stdout, &["64.0 MiB of GPU memory, already in host memory"]);
    let (code, stdout, stderr) = run(stasis, &all("resume"))?;
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), NAMES.len(), "{stdout}");
    for (line, name) in lines.iter().zip(NAMES) {
        let beginning = format!("{name}: runs again after ");
        assert!(line.starts_with(&beginning), "{stdout}");
    }
    for (_, port) in COUNTERS {
        counts_on(stasis, port)?;
    }
    let (code, stdout, _) = run(stasis, &["resume", "ctr-job"])?;
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "ctr-job: runs already\n")
    );
    stasis.nothing_to_put_right()
}

pub(crate) fn what_fails_leaves_the_others_done(stasis: &StasisHost) -> Result<()> {
    stasis.inject("checkpoint podman-job error:801")?;
    let (code, outcomes) = json(stasis, &["suspend", "podman-job", "nobody", "ctr-job"])?;
    stasis.inject("")?;
    assert_eq!(code, Some(1));
    let facts = |key: &str| -> Vec<Value> {
        let of = outcomes.iter().map(|outcome| outcome[key].clone());
        of.collect()
    };
    assert_eq!(facts("result"), ["failed", "failed", "done"]);
    assert_eq!(facts("kind")[..2], ["unsupported", "no-container"]);
    assert_eq!(facts("state")[..2], ["unharmed", "unharmed"]);
    counts_on(stasis, 10001)?;
    // The line of a failure is in the log.
    let (_, failed) = json(stasis, &["log", "--container", "podman-job", "--failed"])?;
    let last = failed.last().context("no line")?;
    assert_eq!(
        (&last["operation"], &last["kind"]),
        (&"suspend".into(), &"unsupported".into())
    );
    let (code, stdout, stderr) = run(stasis, &["suspend", "idle"])?;
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_contains(&stderr, &["idle: no process", "[no-cuda]"]);
    for wrong in [["suspend", "--wait=x"], ["suspend", "--json"]] {
        assert_eq!(run(stasis, &wrong)?.0, Some(2), "{wrong:?}");
    }
    programs_get_one_shape_of_failure(stasis)?;
    assert_eq!(run(stasis, &["resume", "ctr-job"])?.0, Some(0));
    counts_on(stasis, 10000)
}

/// One exit code and one shape, whether the command line is wrong or there is no such container.
fn programs_get_one_shape_of_failure(stasis: &StasisHost) -> Result<()> {
    for (wrong, kind) in [
        (&["suspend", "--json"][..], "usage"),
        (&["pusch", "--json"], "usage"),
        (&["check", "nobody", "--json"], "no-container"),
        (&["checkpoint", "nobody", "--json"], "no-container"),
        (&["restore", "nobody", "--json"], "no-container"),
        (&["recover", "nobody", "--json"], "no-container"),
        (&["log", "--container", "nobody", "--json"], "no-container"),
        (&["gc", "--container", "nobody", "--json"], "no-container"),
    ] {
        let (code, stdout, _) = run(stasis, wrong)?;
        let answer: Value = serde_json::from_str(&stdout).context(stdout)?;
        assert_eq!(
            (code, &answer["kind"]),
            (Some(2), &kind.into()),
            "{wrong:?}"
        );
        assert_eq!(
            (&answer["schema"], &answer["state"]),
            (&1.into(), &"unharmed".into())
        );
        assert!(answer["error"].is_string(), "{answer}");
    }
    for verb in ["suspend", "resume"] {
        assert_eq!(run(stasis, &[verb, "nobody"])?.0, Some(2), "{verb}");
    }
    Ok(())
}

/// Another container has taken the room of a suspended one, and ends.
pub(crate) fn a_resume_waits_for_room(stasis: &StasisHost) -> Result<()> {
    stasis.inject("memory 700")?;
    stasis.ctr_run("big", &[], &["/bin/memcheck", "250", "10005"])?;
    assert_eq!(stasis.ask_until_up(10005)?, "ok 0");
    assert_eq!(run(stasis, &["suspend", "big"])?.0, Some(0));
    stasis.ctr_run("hog", &[], &["/bin/memcheck", "400", "10006"])?;
    assert_eq!(stasis.ask_until_up(10006)?, "ok 0");
    let (code, _, stderr) = run(stasis, &["resume", "big"])?;
    assert_eq!(code, Some(1), "{stderr}");
    assert_contains(&stderr, &["big: ", "nothing was done", "[no-gpu-memory]"]);
    let mut resume = stasis.command(PROGRAM);
    let mut resume = resume
        .args(["resume", "--wait", "big"])
        .stdout(Stdio::piped())
        .spawn()?;
    let refused = || -> Result<usize> {
        let log = json(stasis, &["log", "--container", "big", "--failed"])?;
        Ok(log.1.len())
    };
    let before = refused()?;
    wait_until_clear(|| Ok((refused()? <= before).then(|| "it has not tried".to_owned())))?;
    ensure!(resume.try_wait()?.is_none(), "it has to wait");
    let waiting = descendant(&resume, "stasis")?.context("it is over")?;
    kill(waiting, Signal::SIGTERM)?;
    let output = resume.wait_with_output()?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let mut resume = stasis.command(PROGRAM);
    let resume = resume
        .args(["resume", "--wait", "big"])
        .stdout(Stdio::piped())
        .spawn()?;
    stasis.ctr_remove("hog")?;
    let output = resume.wait_with_output()?;
    ensure!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_contains(&said, &["big: runs again after "]);
    assert_eq!(stasis.ask(10005)?.as_deref(), Some("ok 1"));
    stasis.ctr_remove("big")?;
    stasis.inject("")
}
