//! GPU contents of one process, moved out and in by the driver alone and by code of ours. Whether
//! they are right afterwards is for the workload to say.

use std::fmt;
use std::io::Write;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stasis_injection::{Prepared, PutBack, Returned, Transfer, prepare, slots};
use stasis_linux::ProcessRef;
use stasis_linux::memory_file::{self, Clearing};

/// One of the driver's checkpoint calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// The process makes no more calls.
    Lock,
    /// Contents go out.
    Checkpoint,
    /// Contents come in.
    Restore,
    /// The process goes on.
    Unlock,
}

/// How long contents took, in seconds, with all that was done for that.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// To host memory: its pages are counted.
    pub out: f64,
    /// To the GPU.
    pub back: f64,
}

/// A process that runs, before and after.
pub struct Subject<'l> {
    /// The process.
    pub process: ProcessRef,
    /// At least what it has on its GPUs.
    pub bytes: u64,
    /// How many processes copy together with the driver.
    pub workers: u64,
    /// Calls the driver.
    pub driver: &'l dyn Fn(Call) -> Result<()>,
    /// Done before each direction, and not timed.
    pub before: &'l dyn Fn() -> Result<()>,
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Subject");
        shown
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl Subject<'_> {
    /// Has the driver do all, and prints how long each step takes.
    pub fn by_driver(&self, screen: &mut dyn Write) -> Result<Times> {
        let mut steps = Steps { screen, sum: 0.0 };
        (self.driver)(Call::Lock)?;
        (self.before)()?;
        steps.timed("driver out", || (self.driver)(Call::Checkpoint))?;
        let out = steps.taken();
        (self.before)()?;
        steps.timed("driver in", || (self.driver)(Call::Restore))?;
        let back = steps.taken();
        (self.driver)(Call::Unlock)?;
        Ok(Times { out, back })
    }

    /// Does the same with code of ours, and a file that is cleared before.
    pub fn by_us(&self, screen: &mut dyn Write) -> Result<Times> {
        let mut steps = Steps { screen, sum: 0.0 };
        (self.driver)(Call::Lock)?;
        (self.before)()?;
        let file = memory_file::create(self.bytes)?;
        let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
        steps.timed("allocate", || Ok(memory_file::allocate(&file, self.bytes)?))?;
        steps.timed("clear", || {
            let clearing = Clearing::start(&file, self.bytes, threads)?;
            ensure!(clearing.ends_within(Duration::MAX), "it goes on for ever");
            Ok(())
        })?;
        let transfer = Transfer::Out {
            file,
            offset: 0,
            length: self.bytes,
        };
        let moved = self.moved(&mut steps, "out", transfer, Call::Checkpoint)?;
        let out = steps.taken();
        let contents = moved.contents.context("the driver has asked for nothing")?;
        (self.before)()?;
        let transfer = Transfer::In { contents };
        self.moved(&mut steps, "in", transfer, Call::Restore)?;
        let back = steps.taken();
        (self.driver)(Call::Unlock)?;
        Ok(Times { out, back })
    }

    fn moved(
        &self,
        steps: &mut Steps<'_>,
        name: &str,
        transfer: Transfer,
        call: Call,
    ) -> Result<Returned> {
        let prepared = steps.timed(&format!("prepare {name}"), || self.prepare(transfer))?;
        let armed = steps.timed(&format!("arm {name}"), || Ok(prepared.arm()?))?;
        let driven = steps.timed(&format!("ours {name}"), || (self.driver)(call));
        let back = steps.timed(&format!("disarm {name}"), || Ok(armed.disarm()?))?;
        driven?;
        writeln!(steps.screen, "  {back:?}")?;
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
}

/// A timer of consecutive steps.
struct Steps<'s> {
    screen: &'s mut dyn Write,
    /// Seconds of all steps since the sum was last taken.
    sum: f64,
}

impl Steps<'_> {
    fn timed<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let result = work();
        let seconds = began.elapsed().as_secs_f64();
        self.sum += seconds;
        writeln!(self.screen, "  {name}: {seconds:.3} s")?;
        result
    }

    fn taken(&mut self) -> f64 {
        std::mem::take(&mut self.sum)
    }
}
