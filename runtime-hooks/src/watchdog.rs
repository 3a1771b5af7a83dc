//! A deadline for every call of the driver.
//!
//! The driver acts on a process through that process: a call about one that is stopped in the middle does
//! not come back, whatever timeout it was given (measured on driver 580.159). So each call is
//! made in a thread that is waited for. One that is overdue is left behind with its thread, since a thread cannot be
//! cancelled, and the process that made it is to end soon; what the call still does when it goes on after all is
//! put right by the guardian (`guardian.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::cuda::{CudaError, CudaState, Driver, GpuMap, end_process};
use crate::stop::Stop;

/// What a call may take that has nothing to wait for.
pub const MARGIN: Duration = Duration::from_secs(5);

/// Whether a call was ever left behind.
static LEFT_BEHIND: AtomicBool = AtomicBool::new(false);

/// How long calls may take.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Those that move nothing: state queries, and locks beyond the time that the driver is given.
    pub answer: Duration,
    /// Those that move GPU contents, and unlocks, which come after them.
    pub work: Duration,
}

/// A driver whose calls all come back: late ones with [`CudaError::NoAnswer`].
pub struct WatchedDriver {
    driver: Arc<dyn Driver>,
    limits: CallLimits,
    /// Threads that have nothing to do: a container of a hundred processes is no reason for as many threads.
    idle: Mutex<Vec<Worker>>,
    /// Calls that were left behind, by the process that they are about.
    overdue: Mutex<BTreeMap<i32, Vec<JoinHandle<()>>>>,
}

/// A thread that makes one call after the other, and ends when nobody can ask it for another.
struct Worker {
    calls: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start() -> Self {
        let (calls, asked) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let thread = thread::spawn(move || asked.into_iter().for_each(|call| call()));
        Self { calls, thread }
    }
}

/// Ends the process if a call was left behind. A library that cleans up when its process ends, as
/// the driver's does, may wait for its own calls.
pub fn end_in_spite_of_calls(code: u8) {
    if LEFT_BEHIND.load(Ordering::Relaxed) {
        let _ = io::stdout().flush();
        end_process(code);
    }
}

impl WatchedDriver {
    /// Watches the calls of `driver`.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>, limits: CallLimits) -> Self {
        Self {
            driver,
            limits,
            idle: Mutex::default(),
            overdue: Mutex::default(),
        }
    }

    fn call<T: Send + 'static>(
        &self,
        pid: i32,
        limit: Duration,
        call: impl FnOnce(&dyn Driver) -> Result<T, CudaError> + Send + 'static,
    ) -> Result<T, CudaError> {
        // The driver does one thing after the other for a process: this one would wait as well.
        if self.is_overdue(pid) {
            return Err(CudaError::NoAnswer(limit));
        }
        let driver = Arc::clone(&self.driver);
        let (answer, answered) = mpsc::channel();
        let worker = hold(&self.idle).pop().unwrap_or_else(Worker::start);
        // One that has ended drops the call unmade, and that is seen below.
        let _ = worker.calls.send(Box::new(move || {
            // Nobody hears an answer that comes too late.
            let _ = answer.send(call(&*driver));
        }));
        let start = Instant::now();
        loop {
            let left = limit.saturating_sub(start.elapsed());
            match answered.recv_timeout(left.min(MARGIN)) {
                Ok(result) => {
                    hold(&self.idle).push(worker);
                    return result;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match worker.thread.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => return Err(CudaError::NoAnswer(start.elapsed())),
                },
            }
            // For a process that has been stopped meanwhile there is nothing to wait for.
            if start.elapsed() >= limit || matches!(Stop::of(pid), Ok(Some(_))) {
                hold(&self.overdue)
                    .entry(pid)
                    .or_default()
                    .push(worker.thread);
                LEFT_BEHIND.store(true, Ordering::Relaxed);
                return Err(CudaError::NoAnswer(start.elapsed()));
            }
        }
    }

    fn is_overdue(&self, pid: i32) -> bool {
        let mut overdue = hold(&self.overdue);
        overdue.get_mut(&pid).is_some_and(|threads| {
            threads.retain(|thread| !thread.is_finished());
            !threads.is_empty()
        })
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver for WatchedDriver {
    fn state(&self, pid: i32) -> Result<CudaState, CudaError> {
        self.call(pid, self.limits.answer, move |driver| driver.state(pid))
    }

    fn restore_thread(&self, pid: i32) -> Result<i32, CudaError> {
        self.call(pid, self.limits.answer, move |driver| {
            driver.restore_thread(pid)
        })
    }

    fn lock(&self, pid: i32, timeout: Duration) -> Result<(), CudaError> {
        let limit = timeout.saturating_add(self.limits.answer);
        self.call(pid, limit, move |driver| driver.lock(pid, timeout))
    }

    fn checkpoint(&self, pid: i32) -> Result<(), CudaError> {
        self.call(pid, self.limits.work, move |driver| driver.checkpoint(pid))
    }

    fn restore(&self, pid: i32, map: &GpuMap) -> Result<(), CudaError> {
        let map = map.clone();
        self.call(pid, self.limits.work, move |driver| {
            driver.restore(pid, &map)
        })
    }

    fn unlock(&self, pid: i32) -> Result<(), CudaError> {
        self.call(pid, self.limits.work, move |driver| driver.unlock(pid))
    }
}

impl fmt::Debug for WatchedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedDriver")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
