//! An operation is killed just after it has started the process that surveys its ranks: that
//! process is in none of them yet, and has no record.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_integration::check::process_tree::{all_started_by, descendant};
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

const PORT: u16 = 10301;
/// The name of the held driver call.
const HELD: &str = "step";
const COPY: &str = "stasis-gpu-copy";
/// How long a keeper is given to unlock what it must not: it takes some milliseconds.
const TEMPTED: Duration = Duration::from_secs(2);

on_hosts!(all_cases: sid);

fn all_cases(kind: HostKind) -> Result<()> {
    let stasis = &StasisHost::with_containerd(kind)?;
    stasis.inject("gpus 2")?;
    let job = Bundle::make(stasis, "sharing", &["/bin/sharing", "10301", "2"])?;
    job.give(&[0, 1])?;
    job.run()?;
    ensure!(stasis.ask_until_up(PORT)? == "101 101");
    // A job's first checkpoint tries the driver, which starts such processes, too.
    job.checkpoint("tried", &["--leave-running"])?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("102 102"));

    let surveying = killed_when_it_surveys(stasis, &job)?;
    wait_until_clear(|| {
        let keepers = stasis.keepers();
        Ok(keepers.is_empty().then(|| "no keeper".to_owned()))
    })?;
    sleep(TEMPTED);
    let records = stasis.records()?;
    kill(surveying, Signal::SIGCONT)?;
    ensure!(
        !records.is_empty(),
        "the ranks were unlocked beside their survey"
    );
    stasis.nothing_to_put_right()?;
    ensure!(stasis.ask(PORT)?.as_deref() == Some("103 103"));
    job.delete()
}

/// Stops the surveying process as soon as it is there, and kills the operation.
fn killed_when_it_surveys(stasis: &StasisHost, job: &Bundle<'_>) -> Result<Pid> {
    stasis.hold_driver("lock *", HELD)?;
    let mut checkpoint = job.begin_checkpoint("cut-off", &["--leave-running"])?;
    stasis.until_driver_is_called()?;
    let operation = descendant(&checkpoint, "stasis-runtime")?.context("it is over")?;
    // The others make files for GPU contents.
    let others: Vec<Pid> = all_started_by(operation, COPY).collect();
    stasis.let_driver_go(HELD)?;
    let surveying = loop {
        let new = children(operation).find(|pid| !others.contains(pid) && has_begun(*pid));
        if let Some(pid) = new {
            break pid;
        }
        ensure!(checkpoint.try_wait()?.is_none(), "it is over");
    };
    kill(surveying, Signal::SIGSTOP)?;
    kill(operation, Signal::SIGKILL)?;
    checkpoint.wait()?;
    Ok(surveying)
}

/// Returns the children of a process. Quicker than a look at all processes: the one that is looked
/// for has a record after some milliseconds.
fn children(of: Pid) -> impl Iterator<Item = Pid> {
    let threads = fs::read_dir(format!("/proc/{of}/task"))
        .into_iter()
        .flatten();
    let texts = threads.flatten().map(|thread| {
        let children = fs::read_to_string(thread.path().join("children"));
        children.unwrap_or_default()
    });
    let pids: Vec<i32> = texts
        .flat_map(|text| {
            let pids = text.split_whitespace().map(str::parse);
            pids.flatten().collect::<Vec<_>>()
        })
        .collect();
    pids.into_iter().map(Pid::from_raw)
}

/// Whether a process has its own name, and has closed what it has no use for: beside the standard
/// descriptors it keeps a lock at most.
fn has_begun(pid: Pid) -> bool {
    let has_name =
        || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == COPY);
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    has_name() && (3..=4).contains(&open())
}
