//! `stasis doctor`, or the first checkpoint, has a process of its own checkpointed with copying by
//! our threads, once for each build of libcuda, and keeps the result.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::descendant;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{
    CUDA_CHECKPOINT, PROGRAM, SELF_TESTS as RESULTS, StasisHost,
};
use stasis_integration::{needs, on_hosts};

/// The end of the evidence of a build that has passed.
const PASSED: &str = " has passed the self-test); a survey at the lock shows what processes share";
const TRIED: &str = "stasis-gpu-self-test";
const PORT: u16 = 10311;
const LIMIT: u64 = 128 << 20;
const ALONE: &str = "the driver alone copies GPU contents";

on_hosts!(all_cases: trixie, sid_v2);

type Case = fn(&StasisHost) -> Result<()>;

fn all_cases(kind: HostKind) -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(kind)?;
    stasis.run(&["rm", "-r", RESULTS])?;
    let cases: [(&str, Case); 4] = [
        ("a build is tried once", a_build_is_tried_once),
        ("the driver's own failures", what_the_driver_cannot_do_alone),
        ("another way", a_driver_that_copies_in_another_way),
        ("killed", one_that_is_killed),
    ];
    for (name, case) in cases {
        case(stasis).context(name)?;
        stasis.inject("")?;
        stasis.run(&["rm", "-r", RESULTS])?;
    }
    Ok(())
}

/// Returns the finding of `stasis doctor` about copying.
fn check(stasis: &StasisHost) -> Result<Value> {
    let command = [PROGRAM, "doctor", "--self-test", "--json"];
    let report: Value = serde_json::from_str(&stasis.run_for_text(&command)?)?;
    let findings = report["findings"].as_array().context("no findings")?;
    let found = findings.iter().find(|finding| finding["id"] == "copying");
    found.cloned().with_context(|| report.to_string())
}

/// Returns the stored results.
fn results(stasis: &StasisHost) -> Result<Vec<Value>> {
    let directory = stasis.path(RESULTS);
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let files = fs::read_dir(directory)?;
    files
        .map(|file| Ok(serde_json::from_slice(&fs::read(file?.path())?)?))
        .collect()
}

/// Returns the self-test's processes and the reservations in force, if there are any.
fn left(stasis: &StasisHost) -> Result<Option<String>> {
    let script = "grep -lx gpu-self-test /proc/[0-9]*/comm; \
                  find /run/stasis/ledger -type f ! -exec flock --nonblock {} true ';' -print";
    let found = stasis.command("sh").args(["-c", script]).output()?;
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    Ok((!found.is_empty()).then_some(found))
}

fn nothing_is_left(stasis: &StasisHost) -> Result<()> {
    wait_until_clear(|| left(stasis))
}

/// Returns the build of libcuda that has passed.
fn passed(found: &Value) -> Result<String> {
    ensure!(found["verdict"] == "ok", "{found}");
    let evidence = found["evidence"].as_str().context("no evidence")?;
    let build = evidence
        .strip_prefix("GPU contents are copied by ")
        .and_then(|rest| rest.split_once(" workers beside the driver's thread (libcuda "))
        .and_then(|(_, rest)| rest.strip_suffix(PASSED));
    Ok(build.with_context(|| evidence.to_owned())?.to_owned())
}

fn a_build_is_tried_once(stasis: &StasisHost) -> Result<()> {
    // Surveys do not depend on who copies.
    stasis.set(&stasis.low_level, "gpu_checkpoint.path = \"driver\"\n")?;
    let found = check(stasis)?["evidence"].to_string();
    assert_contains(&found, &[ALONE, "the settings", "a survey at the lock"]);

    stasis.set(&stasis.low_level, "")?;
    let build = passed(&check(stasis)?)?;
    let kept = fs::read(stasis.path(format!("{RESULTS}/{build}.json")))?;
    let kept: Value = serde_json::from_slice(&kept)?;
    assert_eq!(kept["tried"]["copying"], json!("passed"));
    nothing_is_left(stasis)?;

    // The build is not tried again.
    stasis.inject(&format!("lock {TRIED} error:1 1"))?;
    let text = stasis.command(PROGRAM).arg("doctor").output()?;
    let text = String::from_utf8_lossy(&text.stdout);
    assert_contains(&text, &["GPU contents are copied by", &build, "has passed"]);
    ensure!(!stasis.driver_is_called()?, "it was tried again");
    Ok(())
}

fn what_the_driver_cannot_do_alone(stasis: &StasisHost) -> Result<()> {
    let cases = [
        (
            format!("checkpoint {TRIED} error:801 1"),
            "the driver's checkpoint",
        ),
        ("memory 512".to_owned(), "no GPU has 1024 MiB free"),
        ("persistence-off 0".to_owned(), "no GPU has 1024 MiB free"),
        (format!("restore {TRIED} crash 1"), "the driver's restore"),
    ];
    for (order, says) in cases {
        stasis.inject(&order)?;
        let lines = check(stasis)?["evidence"].to_string();
        assert_contains(&lines, &[ALONE, "the self-test cannot be run", says]);
        assert_eq!(results(stasis)?, [] as [Value; 0], "{order}");
        nothing_is_left(stasis)?;
    }
    stasis.inject("")?;
    passed(&check(stasis)?).map(drop)
}

fn a_driver_that_copies_in_another_way(stasis: &StasisHost) -> Result<()> {
    stasis.inject("copies-itself")?;
    // The second answer comes from the stored result.
    for _ in 0..2 {
        let found = check(stasis)?;
        let why = [
            ALONE,
            "has not passed the self-test",
            "copied by our threads: libcuda does not copy by the calls that are known",
            "answered 1 of its mappings, and copied 0 bytes",
        ];
        assert_contains(&found["evidence"].to_string(), &why);
        let [result] = &results(stasis)?[..] else {
            anyhow::bail!("not one result");
        };
        assert_contains(
            &result["tried"]["copying"]["not_passed"].to_string(),
            &why[2..],
        );
        nothing_is_left(stasis)?;
        stasis.inject("")?;
    }
    a_build_that_has_failed_is_left_alone(stasis)
}

fn a_build_that_has_failed_is_left_alone(stasis: &StasisHost) -> Result<()> {
    let _containerd = stasis.containerd()?;
    let counter = Bundle::make(stasis, "counter", &["/bin/counter", "10310"])?;
    counter.run()?;
    stasis.ask_until_up(10310)?;
    let toggle = ["--toggle", "--container", "counter", "--root", ROOT];
    let suspended = stasis.command(CUDA_CHECKPOINT).args(toggle).output()?;
    let said = String::from_utf8_lossy(&suspended.stderr);
    ensure!(suspended.status.success(), "{said}");
    assert_contains(
        &said,
        &["the driver alone copies", "has not passed the self-test"],
    );
    counter.delete()
}

/// Killed in the driver's checkpoint, while the driver's calls lead to our code.
fn one_that_is_killed(stasis: &StasisHost) -> Result<()> {
    stasis.hold_driver(&format!("restore {TRIED}"), "first")?;
    let mut doctor = stasis.command(PROGRAM);
    doctor.args(["doctor", "--self-test"]).stdout(Stdio::null());
    let mut running = doctor.spawn()?;
    stasis.until_driver_is_called()?;
    stasis.hold_driver(&format!("checkpoint {TRIED}"), "second")?;
    stasis.let_driver_go("first")?;
    stasis.until_driver_is_called()?;
    let tester = descendant(&running, "stasis")?.context("the check has ended")?;
    let there = left(stasis)?.unwrap_or_default();
    assert_contains(&there, &["/comm", "/ledger/"]);
    kill(tester, Signal::SIGKILL)?;
    running.wait()?;
    stasis.let_driver_go("second")?;
    nothing_is_left(stasis)?;
    assert_eq!(results(stasis)?, [] as [Value; 0]);
    passed(&check(stasis)?).map(drop)
}

/// A container's memory limit has no room for contents that do not go through a file.
#[test]
fn the_first_checkpoint_tries_it() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::of(HostKind::trixie()?)?;
    stasis.run(&["rm", "-r", RESULTS])?;
    let _containerd = stasis.containerd()?;
    let memory = limited(stasis)?;
    stasis.inject(&format!("checkpoint {TRIED} error:801 1"))?;
    let message = memory.checkpoint_fails("refused", &[])?;
    assert_contains(&message, &["[memory-limit]", "runs on as before"]);
    assert_eq!(results(stasis)?, [] as [Value; 0]);
    stasis.inject("")?;
    memory.checkpoint("good", &["--leave-running"])?;
    ensure!(results(stasis)?.len() == 1, "it was not tried");
    let line = stasis.operation("checkpoint")?;
    ensure!(line["notes"].is_null(), "{line}");
    nothing_is_left(stasis)?;
    memory.checkpoint("last", &[])?;
    // As after a reboot.
    stasis.run(&["rm", "-r", RESULTS])?;
    memory.restore("last")?;
    let notes = stasis.operation("restore")?["notes"].to_string();
    assert_contains(
        &notes,
        &["the driver alone copies", "was not tried on this node"],
    );
    assert_eq!(stasis.ask(PORT)?.as_deref(), Some("ok 1"));
    memory.delete()
}

/// Starts a container with 48 MiB on the GPU, 16 MiB beside it, and a limit of 128 MiB.
fn limited(stasis: &StasisHost) -> Result<Bundle<'_>> {
    let memory = Bundle::make(stasis, "memory", &["/bin/memcheck", "48", "10311"])?;
    memory.limit_memory(LIMIT)?;
    memory.comes_up(PORT, "ok 0")?;
    Ok(memory)
}
