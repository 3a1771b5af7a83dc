//! Runs driver calls for several processes in parallel, one call a process.
//!
//! A thread may be refused (pids.max of our own cgroup, TasksMax of a unit, vm.max_map_count), and
//! the code in it may panic. Both are failures of one process here, because the caller still has
//! to bring the others back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Builder};

use stasis_linux::ProcessRef;

use crate::cuda::failure::{Cause, ProcessFailure, Step};

/// Driver calls scale with the GPUs of a machine, but only in part with the processes on each.
const AT_ONCE: usize = 32;

/// Runs `work` for every process, several in parallel, and returns the failures in the order of
/// the processes. If no more threads can be started, those that run do all the work.
pub(crate) fn for_each(
    step: Step,
    processes: &[ProcessRef],
    work: impl Fn(&ProcessRef) -> Result<(), ProcessFailure> + Sync,
) -> Vec<ProcessFailure> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let carry_out = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(process) = processes.get(index) else {
                return;
            };
            if let Err(fault) = caught(step, process, &work) {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.push((index, fault));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..processes.len().min(AT_ONCE) {
            if Builder::new().spawn_scoped(scope, carry_out).is_err() {
                break;
            }
        }
        carry_out();
    });
    let mut failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|(index, _)| *index);
    failures.into_iter().map(|(_, fault)| fault).collect()
}

/// Runs `work` for all processes at the same time, so that they may wait for each other. Calls
/// `missing` for each process whose thread could not be started or panicked.
pub(crate) fn all_at_once(
    step: Step,
    processes: &[ProcessRef],
    work: impl Fn(&ProcessRef) -> Result<(), ProcessFailure> + Sync,
    missing: impl Fn() + Sync,
) -> Vec<ProcessFailure> {
    let take_part = |process| {
        caught(step, process, &work).inspect_err(|fault| {
            if matches!(fault.cause, Cause::Panic) {
                missing();
            }
        })
    };
    thread::scope(|scope| {
        let take_part = &take_part;
        let start = |process| {
            let thread = Builder::new().spawn_scoped(scope, move || take_part(process));
            thread.map_err(|error| {
                missing();
                ProcessFailure::of(step, process, Cause::NoThread(error))
            })
        };
        let started: Vec<_> = processes.iter().map(start).collect();
        let results = started.into_iter().zip(processes).map(|(thread, process)| {
            let panicked = |_| Err(ProcessFailure::of(step, process, Cause::Panic));
            thread?.join().unwrap_or_else(panicked)
        });
        results.filter_map(Result::err).collect()
    })
}

fn caught(
    step: Step,
    process: &ProcessRef,
    work: impl Fn(&ProcessRef) -> Result<(), ProcessFailure>,
) -> Result<(), ProcessFailure> {
    let result = catch_unwind(AssertUnwindSafe(|| work(process)));
    result.unwrap_or_else(|_| Err(ProcessFailure::of(step, process, Cause::Panic)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn own() -> ProcessRef {
        let pid = i32::try_from(std::process::id()).unwrap();
        ProcessRef::open(pid).unwrap().unwrap()
    }

    #[test]
    fn a_thousand_processes_take_no_thousand_threads() {
        let processes: Vec<ProcessRef> = (0..200).map(|_| own()).collect();
        let seen = Mutex::new((BTreeSet::new(), 0));
        let failures = for_each(Step::Unlock, &processes, |process| {
            let mut seen = seen.lock().unwrap();
            seen.0.insert(format!("{:?}", thread::current().id()));
            seen.1 += 1;
            match seen.1 {
                7 | 70 => Err(ProcessFailure::of(Step::Unlock, process, Cause::NoDriver)),
                _ => Ok(()),
            }
        });
        let (threads, calls) = seen.into_inner().unwrap();
        assert_eq!(calls, 200);
        assert!(threads.len() <= AT_ONCE, "{}", threads.len());
        assert_eq!(failures.len(), 2);
    }

    #[test]
    fn a_panic_is_a_failure_of_its_process_and_the_others_go_on() {
        let processes = [own(), own(), own()];
        let calls = AtomicUsize::new(0);
        let work = |_: &ProcessRef| {
            assert_ne!(calls.fetch_add(1, Ordering::Relaxed), 1, "a fault of ours");
            Ok(())
        };
        let failures = for_each(Step::Unlock, &processes, work);
        assert!(matches!(
            failures[..],
            [ProcessFailure {
                cause: Cause::Panic,
                ..
            }]
        ));
        assert_eq!(calls.load(Ordering::Relaxed), 3);

        calls.store(0, Ordering::Relaxed);
        let missing = AtomicUsize::new(0);
        let failures = all_at_once(Step::Lock, &processes, work, || {
            missing.fetch_add(1, Ordering::Relaxed);
        });
        assert!(matches!(
            failures[..],
            [ProcessFailure {
                cause: Cause::Panic,
                ..
            }]
        ));
        assert_eq!(missing.into_inner(), 1);
    }
}
