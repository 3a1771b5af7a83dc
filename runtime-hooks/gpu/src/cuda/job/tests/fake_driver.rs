//! A driver without a GPU, for the tests of this crate and of the engine, which includes this file.
#![allow(dead_code, reason = "each crate uses some of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use stasis_gpu::cuda::failure::Step;
use stasis_gpu::cuda::{CudaError, CudaState, Driver, GpuMap};
use stasis_linux::ProcessRef;

/// A driver with the real one's state machine, for processes that are mere sleepers.
#[derive(Default)]
pub(crate) struct FakeDriver {
    pub(super) states: Mutex<BTreeMap<i32, CudaState>>,
    /// Errors to give, in order, for (step, pid); then the call works.
    pub(super) script: Mutex<BTreeMap<(u8, i32), Vec<CudaError>>>,
    /// The (step, pid) whose calls do not return while they are in here.
    pub(super) hanging: Mutex<BTreeSet<(u8, i32)>>,
    /// For pids that cannot be locked yet: the pid that must be unlocked before.
    pub(super) pending_on: Mutex<BTreeMap<i32, i32>>,
    /// Pids that share memory which was given up.
    pub(super) sharing: Mutex<BTreeSet<i32>>,
    /// Pids that share memory whose owner has ended.
    pub(super) ownerless: Mutex<BTreeSet<i32>>,
}

impl FakeDriver {
    pub(crate) fn set(&self, pid: i32, state: CudaState) {
        self.states.lock().unwrap().insert(pid, state);
    }

    pub(super) fn fail(&self, step: Step, pid: i32, errors: &[CudaError]) {
        self.script
            .lock()
            .unwrap()
            .insert((step as u8, pid), errors.to_vec());
    }

    fn go(&self, step: Step, pid: i32, from: CudaState, to: CudaState) -> Result<(), CudaError> {
        while self.hanging.lock().unwrap().contains(&(step as u8, pid)) {
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(errors) = self.script.lock().unwrap().get_mut(&(step as u8, pid))
            && !errors.is_empty()
        {
            return Err(errors.remove(0));
        }
        let mut states = self.states.lock().unwrap();
        match states.get(&pid) {
            None => Err(CudaError::NotInitialized),
            Some(state) if *state == from => {
                states.insert(pid, to);
                Ok(())
            }
            Some(_) => Err(CudaError::IllegalState),
        }
    }

    pub(crate) fn all_are(&self, state: CudaState) -> bool {
        self.states
            .lock()
            .unwrap()
            .values()
            .all(|found| *found == state)
    }
}

impl Driver for FakeDriver {
    fn state(&self, process: &ProcessRef) -> Result<CudaState, CudaError> {
        let mut script = self.script.lock().unwrap();
        if let Some(errors) = script.get_mut(&(Step::Query as u8, process.pid()))
            && !errors.is_empty()
        {
            return Err(errors.remove(0));
        }
        drop(script);
        self.states
            .lock()
            .unwrap()
            .get(&process.pid())
            .copied()
            .ok_or(CudaError::NotInitialized)
    }
    fn restore_thread(&self, process: &ProcessRef) -> Result<i32, CudaError> {
        Ok(process.pid())
    }
    fn lock(&self, process: &ProcessRef, timeout: Duration) -> Result<(), CudaError> {
        let began = Instant::now();
        while self.pending_on.lock().unwrap().contains_key(&process.pid()) {
            if began.elapsed() >= timeout {
                return Err(CudaError::NotReady);
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.go(
            Step::Lock,
            process.pid(),
            CudaState::Running,
            CudaState::Locked,
        )
    }
    fn checkpoint(&self, process: &ProcessRef) -> Result<(), CudaError> {
        self.go(
            Step::Checkpoint,
            process.pid(),
            CudaState::Locked,
            CudaState::Checkpointed,
        )
    }
    fn restore(&self, process: &ProcessRef, _: &GpuMap) -> Result<(), CudaError> {
        self.go(
            Step::Restore,
            process.pid(),
            CudaState::Checkpointed,
            CudaState::Locked,
        )
    }
    fn shares_memory(&self, process: &ProcessRef) -> bool {
        self.sharing.lock().unwrap().contains(&process.pid())
    }
    fn share_again(&self, _: &ProcessRef) -> Result<(), CudaError> {
        let states = self.states.lock().unwrap();
        let mut sharing = self.sharing.lock().unwrap();
        let ownerless = self.ownerless.lock().unwrap();
        let is_locked = |pid| states.get(pid) == Some(&CudaState::Locked);
        if !sharing.difference(&ownerless).all(is_locked) {
            return Err(CudaError::SharedMemoryAway);
        }
        sharing.retain(|pid| ownerless.contains(pid));
        match sharing.is_empty() {
            true => Ok(()),
            false => Err(CudaError::SharedMemoryLost),
        }
    }
    fn unlock(&self, process: &ProcessRef) -> Result<(), CudaError> {
        if self.shares_memory(process) {
            return Err(CudaError::SharedMemoryAway);
        }
        let mut pending_on = self.pending_on.lock().unwrap();
        pending_on.retain(|_, other| *other != process.pid());
        drop(pending_on);
        self.go(
            Step::Unlock,
            process.pid(),
            CudaState::Locked,
            CudaState::Running,
        )
    }
}
