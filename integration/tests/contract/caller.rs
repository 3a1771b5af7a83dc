//! Driver calls from a process of their own, which can be killed and which sees faults of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stasis::cuda::{CudaError, CudaState, Driver, GpuMap};
use stasis_integration::native;

use crate::driver;

/// What the caller has to do, as "CALL PID".
const ORDER: &str = "STASIS_CONTRACT_CALL";

/// Short, so that a lock that must fail does so soon.
const TIMEOUT: Duration = Duration::from_millis(200);

#[test]
#[ignore = "the process that other tests start"]
fn caller() -> Result<()> {
    let order = std::env::var(ORDER).context("this is for other tests to start")?;
    let (call, pid) = order.split_once(' ').context("an order is CALL PID")?;
    let pid = pid.parse()?;
    let driver = driver();
    println!("\ncalling");
    let answer = match call {
        "lock" => driver.lock(pid, TIMEOUT),
        "checkpoint" => driver.checkpoint(pid),
        "restore" => driver.restore(pid, &GpuMap::identity()),
        _ => driver.unlock(pid),
    };
    println!("answer {}", answer.map_or_else(CudaError::code, |()| 0));
    Ok(())
}

/// Makes one call while the stand-in has the given faults; the driver's code.
pub(crate) fn call_with_fault(faults: &str, call: &str, pid: i32) -> Result<i32> {
    let mut child = start(faults, call, pid)?;
    let answer = line_after(&mut child, "answer ")?;
    child.wait()?;
    Ok(answer.parse()?)
}

/// Kills the caller of a checkpoint in the middle of it; the state that the driver gives then.
pub(crate) fn kill_during_checkpoint(
    pid: i32,
    state: impl Fn() -> Result<CudaState, CudaError>,
) -> Result<CudaState> {
    let mut head_start = Duration::from_millis(100);
    loop {
        let mut child = start("checkpoint * slow:800", "checkpoint", pid)?;
        line_after(&mut child, "calling")?;
        sleep(head_start);
        child.kill()?;
        let status = child.wait()?;
        ensure!(!status.success(), "the call ended before it was killed");
        let state = state()?;
        // Still LOCKED: the caller was killed before it had called.
        if state != CudaState::Locked || head_start > Duration::from_secs(5) {
            return Ok(state);
        }
        head_start *= 2;
    }
}

/// Starts [`caller`]; on the stand-in with a /run of its own that holds the faults.
fn start(faults: &str, call: &str, pid: i32) -> Result<Child> {
    let own = std::env::current_exe()?;
    let mut command = if native::has_gpu() {
        Command::new(own)
    } else {
        let script = format!(
            "mount -t tmpfs tmpfs /run && mkdir /run/stasis-standin && \
             echo '{faults}' >/run/stasis-standin/faults && exec \"$0\" \"$@\""
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        unshare.arg(own);
        unshare
    };
    command
        .args(["--exact", "caller::caller", "--ignored", "--nocapture"])
        .env(ORDER, format!("{call} {pid}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a caller")
}

fn line_after(child: &mut Child, start: &str) -> Result<String> {
    let output = child.stdout.as_mut().context("the caller has no output")?;
    for line in BufReader::new(output).lines() {
        if let Some(rest) = line?.strip_prefix(start) {
            return Ok(rest.to_owned());
        }
    }
    anyhow::bail!("the caller ended without saying {start:?}")
}
