//! Moves the GPU contents of one process out and in, by the driver alone and by code of ours, in
//! turns: `gpu-path both|driver|ours PID MIB [ROUNDS] [WORKERS]`, on a machine with a GPU. The
//! process runs before and after; MIB is at least what it has on its GPUs. Whether its contents are
//! right is for its workload to say.

use std::env::args;
use std::num::NonZeroUsize;
use std::process::Command;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stasis_injection::{
    Prepared, PutBack, Returned, Transfer, Unexpected, prepare, slots, worker_count,
};
use stasis_linux::ProcessRef;
use stasis_linux::memory_file::{self, Clearing};

const USAGE: &str = "gpu-path both|driver|ours PID MIB [ROUNDS] [WORKERS]";

fn main() -> Result<()> {
    let mut arguments = args().skip(1);
    let ways: &[Way] = match arguments.next().as_deref() {
        Some("both") => &[Job::by_driver, Job::by_us],
        Some("driver") => &[Job::by_driver],
        Some("ours") => &[Job::by_us],
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
    println!("{workers} workers");
    let job = Job {
        process,
        bytes,
        workers,
    };
    for round in 1..=rounds {
        println!("round {round}");
        for way in ways {
            way(&job)?;
        }
    }
    Ok(())
}

type Way = fn(&Job) -> Result<()>;

struct Job {
    process: ProcessRef,
    bytes: u64,
    workers: u64,
}

impl Job {
    fn by_driver(&self) -> Result<()> {
        self.driver("lock")?;
        timed("driver out", || self.driver("checkpoint"))?;
        timed("driver in", || self.driver("restore"))?;
        self.driver("unlock")
    }

    fn by_us(&self) -> Result<()> {
        let file = memory_file::create(self.bytes)?;
        let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
        timed("allocate", || Ok(memory_file::allocate(&file, self.bytes)?))?;
        timed("clear", || {
            let clearing = Clearing::start(&file, self.bytes, threads)?;
            ensure!(clearing.ends_within(Duration::MAX), "it goes on for ever");
            Ok(())
        })?;
        self.driver("lock")?;
        let transfer = Transfer::Out {
            file,
            offset: 0,
            length: self.bytes,
            unexpected: Unexpected::Refuse,
        };
        let moved = self.moved("out", transfer, "checkpoint")?;
        let contents = moved.contents.context("the driver has asked for nothing")?;
        self.moved("in", Transfer::In { contents }, "restore")?;
        self.driver("unlock")
    }

    fn moved(&self, name: &str, transfer: Transfer, action: &str) -> Result<Returned> {
        let prepared = timed(&format!("prepare {name}"), || self.prepare(transfer))?;
        let armed = timed(&format!("arm {name}"), || Ok(prepared.arm()?))?;
        let driven = timed(&format!("ours {name}"), || self.driver(action));
        let back = timed(&format!("disarm {name}"), || Ok(armed.disarm()?))?;
        driven?;
        println!("  {back:?}");
        let PutBack::Returned(returned) = back else {
            bail!("it is not as it was");
        };
        ensure!(returned.reported.copied > 0, "our code was not used");
        Ok(returned)
    }

    fn prepare(&self, transfer: Transfer) -> Result<Prepared> {
        let slots = slots::inspect(&self.process)?;
        Ok(prepare(&self.process, slots, transfer, self.workers)?)
    }

    /// One call of the driver, the start of a program included.
    fn driver(&self, action: &str) -> Result<()> {
        let pid = self.process.pid().to_string();
        let arguments = ["--action", action, "--pid", &pid];
        let output = Command::new("cuda-checkpoint").args(arguments).output()?;
        if !output.status.success() {
            bail!("{action}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

fn timed<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    let result = work();
    let seconds = began.elapsed().as_secs_f64();
    println!("  {name}: {seconds:.3} s");
    result
}
