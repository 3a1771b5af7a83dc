//! Many containers, and many processes added to them, while containerd is killed and starts again:
//! the cost, and whether anything is lost.

mod caller;
mod containers;
mod exec;
mod restart;
mod shims;
mod told;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::client::containerd::Containerd;
use crate::host::Daemon;
use crate::host::installed::StasisHost;
use crate::load::containers::Containers;
use crate::load::exec::Exec;
use crate::load::restart::Restart;
pub use crate::load::shims::Shims;
use crate::load::told::Told;

/// "full" for as much as a node has, or an issue of the project asks for.
const SIZE: &str = "STASIS_LOAD";

/// Returns the size of a test: little on machines with few processors.
pub fn asked<T>(little: T, full: T) -> T {
    match std::env::var(SIZE).as_deref() {
        Ok("full") => full,
        _ => little,
    }
}

/// The size of a load.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Pods, each with a shim.
    pub pods: usize,
    /// Containers of a pod.
    pub in_a_pod: usize,
    /// Processes that are added to each container, one after the other.
    pub execs: usize,
    /// Callers at the same time.
    pub callers: usize,
    /// The fate of containerd meanwhile.
    pub fate: Fate,
}

/// The fate of containerd while processes are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Killed once half of the processes have been deleted, and started again.
    Killed,
    /// None.
    Spared,
}

/// The costs, and the faults.
#[derive(Debug)]
pub struct Outcome {
    /// The time until all containers ran.
    pub start: Duration,
    /// The time until all added processes had ended and were deleted, with containerd's restart.
    pub execs: Duration,
    /// The time until all containers were killed and deleted.
    pub end: Duration,
    /// The shims before any process was added.
    pub before: Shims,
    /// The shims when all processes were gone again.
    pub after: Shims,
    /// Events that were lost, or came twice.
    pub faults: Vec<String>,
}

impl Size {
    /// The size that an issue of the project asks for.
    pub const FULL: Self = Self {
        pods: 20,
        in_a_pod: 10,
        execs: 10,
        callers: 10,
        fate: Fate::Killed,
    };
    /// For machines with few processors.
    pub const SMALL: Self = Self {
        pods: 4,
        in_a_pod: 6,
        execs: 8,
        callers: 4,
        fate: Fate::Killed,
    };

    /// Returns how many containers there are.
    pub fn containers(&self) -> usize {
        self.pods * self.in_a_pod
    }

    /// The ids of the containers.
    pub fn ids(self) -> impl Iterator<Item = String> {
        (0..self.containers()).map(move |number| containers::id(self, number))
    }

    /// Puts the load on a host, whose containerd runs, under a runtime of containerd's, whose
    /// shims' program is `program`.
    pub fn carry_out(
        self,
        stasis: &StasisHost,
        (runtime, program): (&str, &str),
        containerd: Daemon<'_>,
    ) -> Result<Outcome> {
        let client = Containerd::connect(&stasis.host)?;
        let containers = Containers::plan(stasis, self, runtime)?;
        let mut told = Told::listen(&client)?;

        let begin = Instant::now();
        containers.start(&client)?;
        let start = begin.elapsed();
        let before = Shims::measure(stasis, program)?;
        ensure!(before.count == self.pods, "{before:?}");

        let begin = Instant::now();
        let (client, ended) = add_processes(self, stasis, containerd, &mut told)?;
        let execs = begin.elapsed();
        let after = Shims::settled(stasis, program, &before)?;

        let begin = Instant::now();
        containers.end(&client)?;
        let end = begin.elapsed();
        let faults = told.faults(&containers, &ended)?;
        Ok(Outcome {
            start,
            execs,
            end,
            before,
            after,
            faults,
        })
    }
}

/// Adds processes to all containers, while containerd meets its fate.
fn add_processes(
    size: Size,
    stasis: &StasisHost,
    containerd: Daemon<'_>,
    told: &mut Told,
) -> Result<(Containerd, Vec<Exec>)> {
    let restart = Restart::of(size);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..size.callers)
            .map(|number| {
                let restart = &restart;
                scope.spawn(move || caller::add_all(stasis, restart, size, number))
            })
            .collect();
        let client = restart.carry_out(stasis, containerd, told);
        let mut ended = Vec::new();
        for caller in callers {
            let of_caller = caller.join();
            ended.extend(of_caller.map_err(|_| anyhow::anyhow!("a caller panicked"))??);
        }
        Ok((client?, ended))
    })
}
