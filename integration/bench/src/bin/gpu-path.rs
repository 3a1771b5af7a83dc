//! Moves the GPU contents of one process out and in, by the driver alone and by code of ours, in
//! turns: `gpu-path both|driver|ours PID MIB [ROUNDS] [WORKERS]`, on a machine with a GPU. The
//! process runs before and after; MIB is at least what it has on its GPUs. Whether its contents are
//! right is for its workload to say.

use std::env::args;
use std::io::{Write, stdout};
use std::process::Command;

use anyhow::{Context, Result, bail};
use stasis_bench::gpu_contents::{Call, Subject, Times};
use stasis_injection::worker_count;
use stasis_linux::ProcessRef;

const USAGE: &str = "gpu-path both|driver|ours PID MIB [ROUNDS] [WORKERS]";

type Way<'l> = fn(&Subject<'l>, &mut dyn Write) -> Result<Times>;

fn main() -> Result<()> {
    let mut arguments = args().skip(1);
    let ways: &[Way<'_>] = match arguments.next().as_deref() {
        Some("both") => &[Subject::by_driver, Subject::by_us],
        Some("driver") => &[Subject::by_driver],
        Some("ours") => &[Subject::by_us],
        _ => bail!(USAGE),
    };
    let mut number = |default: Option<u64>| match arguments.next() {
        Some(text) => Ok(text.parse::<u64>()?),
        None => default.context(USAGE),
    };
    let pid = i32::try_from(number(None)?)?;
    let bytes = number(None)? << 20;
    let rounds = number(Some(3))?;
    let process = ProcessRef::open(pid)?.context("there is no such process")?;
    let workers = number(Some(worker_count(&process)))?;
    let subject = Subject {
        process,
        bytes,
        workers,
        driver: &|call| drive(pid, call),
        before: &|| Ok(()),
    };
    let mut screen = stdout();
    writeln!(screen, "{workers} workers")?;
    for round in 1..=rounds {
        writeln!(screen, "round {round}")?;
        for way in ways {
            way(&subject, &mut screen)?;
        }
    }
    Ok(())
}

/// One call of the driver, the start of a program included.
fn drive(pid: i32, call: Call) -> Result<()> {
    let action = match call {
        Call::Lock => "lock",
        Call::Checkpoint => "checkpoint",
        Call::Restore => "restore",
        Call::Unlock => "unlock",
    };
    let pid = pid.to_string();
    let arguments = ["--action", action, "--pid", &pid];
    let output = Command::new("cuda-checkpoint").args(arguments).output()?;
    if !output.status.success() {
        bail!("{action}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
