//! GPU contents that go through no file of ours: the driver copies them into memory of their
//! processes, where CRIU dumps them. Reports before and after it have the cause and the seconds.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::container::bundle::ROOT;
use stasis_integration::container::contents::Contents;
use stasis_integration::container::memory_container::MemoryContainer;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{PROGRAM, StasisHost};
use stasis_integration::needs;
use stasis_memory_store::Index;

use crate::gpu_contents::with_criu;

const MIB: u64 = 1 << 20;
const SAID: [&str; 2] = [
    "the driver and CRIU move ",
    " of GPU contents, with one thread each, which takes about 0.1 s, and as long at a restore: ",
];
/// The result that a failed self-test of this node's driver would have stored.
const FAIL_SELF_TEST: &str = "sed -i 's/\"copying\":\"passed\"/\"copying\":{\"not_passed\":{\"why\":\
                              \"words are wrong\"}}/' /run/stasis/gpu-self-test/*.json";

#[test]
fn the_cause_and_the_seconds_are_said() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::trixie()?)?;
    let job = MemoryContainer::start(stasis, "job", "exec /bin/memcheck 48 10000", 10000)?;
    job.bundle.checkpoint("image", &["--leave-running"])?;
    job.goes_on()?;
    ensure!(has_index(&job)?, "it goes through no file");
    for (settings, cause) in [
        (
            "gpu_checkpoint.minimum_mib = 256\n",
            "GPU contents below gpu_checkpoint.minimum_mib (256)",
        ),
        (
            "gpu_checkpoint.path = \"driver\"\n",
            "gpu_checkpoint.path is \\\"driver\\\" in the settings",
        ),
        (
            "gpu_contents.plugin = \"/nowhere.so\"\n",
            "there is no plugin /nowhere.so",
        ),
        ("", "has not passed the self-test: words are wrong"),
    ] {
        stasis.set(&stasis.low_level, settings)?;
        if settings.is_empty() {
            stasis.run(&["sh", "-c", FAIL_SELF_TEST])?;
        }
        goes_by_criu(stasis, &job, cause).context(cause)?;
    }
    job.end()
}

fn goes_by_criu(stasis: &StasisHost, job: &MemoryContainer<'_>, cause: &str) -> Result<()> {
    let (image, words) = (job.bundle.image("image"), [&SAID[..], &[cause]].concat());
    let check = [PROGRAM, "check", "job", "--root", ROOT, "--json"];
    assert_contains(&stasis.run_for_text(&check)?, &words);
    let mut checkpoint = vec![PROGRAM, "checkpoint", "job", "--root", ROOT];
    checkpoint.extend(["--image", &image, "--dry-run", "--json"]);
    assert_contains(&stasis.run_for_text(&checkpoint)?, &words);
    for options in [&["--leave-running"][..], &[]] {
        job.bundle.checkpoint("image", options)?;
        let notes = stasis.operation("checkpoint")?["notes"].to_string();
        assert_contains(&notes, &words);
        ensure!(!has_index(job)?, "some goes through files");
        let by_criu = with_criu(&job.bundle, "image")?;
        ensure!(by_criu >= (48 + 16) * MIB, "CRIU has {by_criu} bytes");
        if options.is_empty() {
            job.bundle.restore("image")?;
        }
        job.goes_on()?;
    }
    stasis.nothing_to_put_right()
}

fn has_index(job: &MemoryContainer<'_>) -> Result<bool> {
    Ok(Index::read(&job.bundle.image_path("image"))?.is_some())
}

/// The index has holes for one process, and CRIU the memory of the other.
#[test]
fn of_two_processes_one_has_a_file() -> Result<()> {
    needs!(StandIn);
    let stasis = &StasisHost::with_containerd(HostKind::sid_v2()?)?;
    let command = "/bin/memcheck 8 10001 & exec /bin/memcheck 96 10000";
    let job = MemoryContainer::start(stasis, "job", command, 10000)?;
    ensure!(stasis.ask_until_up(10001)? == "ok 0");
    let held = held(stasis)?;
    let minimum = (held.iter().sum::<u64>() / 2) >> 20;
    for place in [Contents::InImage, Contents::InMemory] {
        let minimum = format!("gpu_checkpoint.minimum_mib = {minimum}\n");
        let settings = format!("{minimum}{}", place.setting());
        stasis.set(&stasis.low_level, &settings)?;
        mixed(stasis, &job).with_context(|| format!("{place:?}"))?;
    }
    job.end()
}

fn mixed(stasis: &StasisHost, job: &MemoryContainer<'_>) -> Result<()> {
    let other = |count: u64| -> Result<()> {
        let answer = stasis.ask(10001)?.context("the other does not answer")?;
        ensure!(answer == format!("ok {count}"), "{answer}");
        Ok(())
    };
    let then = job.next();
    for options in [&["--leave-running"][..], &[]] {
        job.bundle.checkpoint("image", options)?;
        let notes = stasis.operation("checkpoint")?["notes"].to_string();
        assert_contains(&notes, &[SAID[0], "GPU contents below"]);
        let index = Index::read(&job.bundle.image_path("image"))?.context("no index")?;
        let pids: Vec<i32> = index.processes.iter().map(|process| process.pid).collect();
        assert_eq!(pids, [1]);
        let stored: u64 = index.areas().map(|area| area.bytes).sum();
        let by_criu = with_criu(&job.bundle, "image")?;
        ensure!(stored >= 96 * MIB, "{stored} bytes are stored");
        ensure!(((8 + 2 * 16) * MIB..96 * MIB).contains(&by_criu));
        if options.is_empty() {
            job.bundle.restore("image")?;
        }
        other(job.next())?;
        job.goes_on()?;
    }
    job.end()?;
    job.bundle.restore("image")?;
    job.is_back_at(then + 1);
    other(then + 1)?;
    job.goes_on()?;
    stasis.nothing_to_put_right()
}

/// Returns each process's GPU memory, in bytes.
fn held(stasis: &StasisHost) -> Result<Vec<u64>> {
    let check = [PROGRAM, "check", "job", "--root", ROOT, "--json"];
    let report: Value = serde_json::from_str(&stasis.run_for_text(&check)?)?;
    let processes = report["processes"].as_array().context("no processes")?;
    let bytes = |process: &Value| process["gpus"][0]["memory_bytes"].as_u64();
    Ok(processes.iter().filter_map(bytes).collect())
}
