//! Suspended processes that share memory, of which not all can have it again at once.

use std::fs;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};

use super::{nothing_is_left, toggle};

/// A process that shares nothing, and two pairs.
const JOB: &str = "STASIS_TAG=one /bin/sharing 10001 2 & STASIS_TAG=two /bin/sharing 10003 2 & \
                   exec /bin/counter 10000";

type Case = fn(&StasisHost, &Bundle<'_>) -> Result<()>;

const CASES: [(&str, Case); 3] = [
    ("traced", a_keeper_tries_again),
    ("stopped", nobody_waits_for_a_stopped_one),
    ("ended", who_needs_no_ended_one_goes_on),
];

pub(super) fn all_cases(stasis: &StasisHost) -> Result<()> {
    let job = Bundle::make(stasis, "pairs", &["/bin/sh", "-c", JOB])?;
    job.give(&[0, 1])?;
    job.run()?;
    for port in [10000, 10001, 10003] {
        stasis.ask_until_up(port)?;
    }
    for (name, case) in CASES {
        toggle(stasis, &job)?;
        case(stasis, &job).context(name)?;
    }
    job.delete()
}

/// Whoever traces the driver's thread in a process keeps all others away.
fn a_keeper_tries_again(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let [_, importer] = pair(stasis, "one")?;
    let threads = format!("/proc/{}/task", stasis.host.outside(&importer)?);
    let (traced, is_traced) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let tracer = thread::spawn(move || {
        let _ = traced.send(trace(&threads));
        // With its tracer's thread the trace ends.
        let _ = ended.recv();
    });
    is_traced.recv()??;
    let failed = fails(stasis, job)?;
    assert_contains(&failed, &["is not there again", "state=waiting"]);
    ensure!(stasis.ask(10000)?.as_deref() == Some("102"), "counter");
    drop(end);
    tracer.join().map_err(|_| anyhow!("the tracer"))?;
    both_answer(stasis, "102 102")?;
    nothing_is_left(stasis)
}

fn trace(threads: &str) -> Result<()> {
    for thread in fs::read_dir(threads)? {
        let thread = thread?.file_name().to_string_lossy().parse()?;
        ptrace::seize(Pid::from_raw(thread), Options::empty())?;
    }
    Ok(())
}

fn nobody_waits_for_a_stopped_one(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let [_, importer] = pair(stasis, "one")?;
    stasis.hold_driver("gpus 2\nrestore one-0", "owner")?;
    let arguments = ["--toggle", "--container", &job.id, "--root", ROOT];
    let toggle = stasis
        .command(CUDA_CHECKPOINT)
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()?;
    stasis.until_driver_is_called()?;
    let state = [CUDA_CHECKPOINT, "--get-state", "--pid", &importer];
    wait_until_clear(|| {
        let state = stasis.run_for_text(&state)?;
        Ok((state.trim() != "locked").then(|| format!("it is {state}")))
    })?;
    stasis.run(&["kill", "-STOP", &importer])?;
    stasis.let_driver_go("owner")?;
    let output = toggle.wait_with_output()?;
    let failed = String::from_utf8_lossy(&output.stderr);
    assert_contains(&failed, &["stopped", "state=waiting"]);
    ensure!(!failed.contains("did not come back"), "{failed}");
    stasis.inject("gpus 2")?;
    stasis.run(&["kill", "-CONT", &importer])?;
    both_answer(stasis, "103 103")?;
    nothing_is_left(stasis)
}

fn who_needs_no_ended_one_goes_on(stasis: &StasisHost, job: &Bundle<'_>) -> Result<()> {
    let [owner, importer] = pair(stasis, "one")?;
    stasis.run(&["kill", "-9", &owner])?;
    let failed = fails(stasis, job)?;
    assert_contains(
        &failed,
        &["a process has ended whose GPU memory", &importer],
    );
    ensure!(
        stasis.ask(10003)?.as_deref() == Some("104 104"),
        "the other pair"
    );
    let state = [CUDA_CHECKPOINT, "--get-state", "--pid", &importer];
    ensure!(stasis.run_for_text(&state)?.trim() == "locked");
    Ok(())
}

/// Returns the pids, in the host, of a pair: the owner's and the importer's.
fn pair(stasis: &StasisHost, tag: &str) -> Result<[String; 2]> {
    let script = format!(
        "for comm in $(grep -lx sharing /proc/[0-9]*/comm); do \
             grep -qz ^STASIS_TAG={tag}$ ${{comm%comm}}environ && echo $comm; \
         done | cut -d/ -f3 | sort -n"
    );
    let found = stasis.run_for_text(&["sh", "-c", &script])?;
    let mut found = found.lines().map(str::to_owned);
    // The first one is their parent.
    match [found.next(), found.next(), found.next()] {
        [Some(_), Some(owner), Some(importer)] => Ok([owner, importer]),
        _ => bail!("no pair {tag}"),
    }
}

/// Gives the GPUs back, which fails. Returns the message.
fn fails(stasis: &StasisHost, job: &Bundle<'_>) -> Result<String> {
    let failed = toggle(stasis, job).err().context("it has not failed")?;
    Ok(format!("{failed:#}"))
}

/// Both pairs answer so, once a keeper has given them their memory back.
fn both_answer(stasis: &StasisHost, wanted: &str) -> Result<()> {
    for port in [10001, 10003] {
        let answer = stasis.ask(port)?.unwrap_or_default();
        ensure!(answer == wanted, "{port}: {answer:?}");
    }
    Ok(())
}
