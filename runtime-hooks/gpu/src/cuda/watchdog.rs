//! Gives every driver call a deadline.
//!
//! The driver acts on a process through that process: a call for a process that is stopped during
//! it does not return, whatever its timeout (measured on driver 580.159). So a worker thread makes
//! each call, and the caller waits for it. An overdue call is abandoned with its thread, since a
//! thread cannot be cancelled, and our process should end soon; if the call goes on after all, the
//! keeper (`recovery/mod.rs`) corrects its effects.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use stasis_host::deadline::{is_left_behind, left_behind};
use stasis_linux::ProcessRef;

use crate::cuda::failure::NoRoom;
use crate::cuda::gpu_use::GpuBytes;
use crate::cuda::locked_time::LockedTime;
use crate::cuda::process_set::arrivals::Arrivals;
use crate::cuda::process_set::room::Room;
use crate::cuda::stopped::Stop;
use crate::cuda::{Copying, CudaError, CudaState, Driver, GpuMap, end_process};

/// The most time of a call that has nothing to wait for.
pub const MARGIN: Duration = Duration::from_secs(5);

/// The most time of calls.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Calls that move no memory: state queries, and locks (in addition to their own timeout).
    pub answer: Duration,
    /// Calls that move GPU contents, and unlocks, which wait for these.
    pub work: Duration,
}

/// A driver whose calls all return: overdue ones with [`CudaError::NoAnswer`].
pub struct WatchedDriver {
    driver: Arc<dyn Driver>,
    limits: CallLimits,
    /// Idle workers, reused so that a hundred processes do not need a hundred threads.
    idle: Mutex<Vec<Worker>>,
    /// The threads of abandoned calls, by the pid that the call acts on.
    overdue: Mutex<BTreeMap<i32, Vec<JoinHandle<()>>>>,
    locked_time: Mutex<LockedTime>,
    room: Option<Arc<dyn Room>>,
}

/// A thread that makes one call after the other, and ends when its channel is closed.
struct Worker {
    calls: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start() -> Result<Self, CudaError> {
        let (calls, asked) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let make_calls = move || asked.into_iter().for_each(|call| call());
        let thread = Builder::new().spawn(make_calls);
        let thread = thread.map_err(|error| {
            // pthread_create(3) returns EAGAIN if a limit on threads is reached.
            let again = Errno::AGAIN.raw_os_error();
            CudaError::NoThread(error.raw_os_error().unwrap_or(again))
        })?;
        Ok(Self { calls, thread })
    }
}

/// Ends the process if a call was left behind: the driver's exit handlers may wait for that call.
pub fn exit_despite_hung_calls(code: u8) {
    if is_left_behind() {
        let _ = io::stdout().flush();
        end_process(code);
    }
}

impl WatchedDriver {
    /// Gives the calls of `driver` deadlines.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>, limits: CallLimits) -> Self {
        Self {
            driver,
            limits,
            idle: Mutex::default(),
            overdue: Mutex::default(),
            locked_time: Mutex::default(),
            room: None,
        }
    }

    /// Returns the same, with a place where room is reserved for restored processes.
    #[must_use]
    pub fn with_room(self, room: Arc<dyn Room>) -> Self {
        let room = Some(room);
        Self { room, ..self }
    }

    /// Returns for how long processes were locked through this driver, at least one at a time.
    pub fn locked_time(&self) -> Duration {
        lock(&self.locked_time).until(Instant::now())
    }

    fn call<T: Send + 'static>(
        &self,
        process: &ProcessRef,
        limit: Duration,
        call: impl FnOnce(&(dyn Driver + 'static), &ProcessRef) -> Result<T, CudaError> + Send + 'static,
    ) -> Result<T, CudaError> {
        let pid = process.pid();
        // The driver makes one call at a time for a process, so this one would wait as well.
        if self.is_overdue(pid) {
            return Err(CudaError::NoAnswer(limit));
        }
        let (driver, about) = (Arc::clone(&self.driver), process.clone());
        let (answer, answered) = mpsc::channel();
        let idle = lock(&self.idle).pop();
        let worker = idle.map_or_else(Worker::start, Ok)?;
        // A worker that has ended drops the call, and `recv_timeout` below reports that.
        let _ = worker.calls.send(Box::new(move || {
            // The receiver is gone if the answer comes too late.
            let _ = answer.send(call(&*driver, &about));
        }));
        let start = Instant::now();
        loop {
            let left = limit.saturating_sub(start.elapsed());
            match answered.recv_timeout(left.min(MARGIN)) {
                Ok(result) => {
                    lock(&self.idle).push(worker);
                    return result;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match worker.thread.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => return Err(CudaError::NoAnswer(start.elapsed())),
                },
            }
            // A process that has been stopped meanwhile will not answer.
            if start.elapsed() >= limit || matches!(Stop::lasting(pid), Ok(Some(_))) {
                lock(&self.overdue)
                    .entry(pid)
                    .or_default()
                    .push(worker.thread);
                left_behind();
                return Err(CudaError::NoAnswer(start.elapsed()));
            }
        }
    }

    fn is_overdue(&self, pid: i32) -> bool {
        let mut overdue = lock(&self.overdue);
        overdue.get_mut(&pid).is_some_and(|threads| {
            threads.retain(|thread| !thread.is_finished());
            !threads.is_empty()
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver for WatchedDriver {
    fn state(&self, process: &ProcessRef) -> Result<CudaState, CudaError> {
        self.call(process, self.limits.answer, <dyn Driver>::state)
    }

    fn restore_thread(&self, process: &ProcessRef) -> Result<i32, CudaError> {
        self.call(process, self.limits.answer, <dyn Driver>::restore_thread)
    }

    fn lock(&self, process: &ProcessRef, timeout: Duration) -> Result<(), CudaError> {
        let limit = timeout.saturating_add(self.limits.answer);
        self.call(process, limit, move |driver, process| {
            driver.lock(process, timeout)
        })?;
        lock(&self.locked_time).lock(process.pid(), Instant::now());
        Ok(())
    }

    fn checkpoint(&self, process: &ProcessRef) -> Result<(), CudaError> {
        self.call(process, self.limits.work, <dyn Driver>::checkpoint)
    }

    fn restore(&self, process: &ProcessRef, map: &GpuMap) -> Result<(), CudaError> {
        let map = map.clone();
        self.call(process, self.limits.work, move |driver, process| {
            driver.restore(process, &map)
        })
    }

    fn shares_memory(&self, process: &ProcessRef) -> bool {
        self.driver.shares_memory(process)
    }

    fn share_again(&self, process: &ProcessRef) -> Result<(), CudaError> {
        self.call(process, self.limits.work, <dyn Driver>::share_again)
    }

    fn unlock(&self, process: &ProcessRef) -> Result<(), CudaError> {
        self.call(process, self.limits.work, <dyn Driver>::unlock)?;
        lock(&self.locked_time).unlock(process.pid(), Instant::now());
        Ok(())
    }

    fn expect(&self, held: &[(ProcessRef, u64)]) {
        self.driver.expect(held);
    }

    fn expect_arrivals(&self, arrivals: &Arc<Arrivals>) {
        self.driver.expect_arrivals(arrivals);
    }

    fn copying(&self) -> Copying {
        self.driver.copying()
    }

    fn copied(&self) -> u64 {
        self.driver.copied()
    }

    fn reserve(&self, needed: &GpuBytes) -> Result<(), NoRoom> {
        self.room
            .as_ref()
            .map_or(Ok(()), |room| room.reserve(needed))
    }
}

impl fmt::Debug for WatchedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedDriver")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
