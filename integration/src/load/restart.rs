//! containerd is killed at a known amount of work, and starts again; callers learn of both.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::exec::Phase;
use super::told::Told;
use super::{Fate, Size};
use crate::client::containerd::{Answer, Containerd};
use crate::host::Daemon;
use crate::host::installed::StasisHost;

/// The work up to the restart, and the restart itself, have to be done in this time.
const DEADLINE: Duration = Duration::from_secs(300);

/// The progress of callers and containerd.
#[derive(Debug)]
pub(super) struct Restart {
    at: usize,
    fate: Fate,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    done: usize,
    phase: Phase,
    failed: bool,
}

impl Restart {
    pub(super) fn of(size: Size) -> Self {
        let all = size.containers() * size.execs;
        Self {
            at: match size.fate {
                Fate::Killed => all / 2,
                Fate::Spared => all,
            },
            fate: size.fate,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// Notes that a process has been deleted.
    pub(super) fn one_is_done(&self) {
        self.lock().done += 1;
        self.changed.notify_all();
    }

    /// Notes that a caller has given up: its work is not waited for.
    pub(super) fn caller_has_failed(&self) {
        self.lock().failed = true;
        self.changed.notify_all();
    }

    /// Returns a call's answer unless it failed since containerd was killed; then waits for the
    /// next containerd, connects `client` to it, and returns `None`.
    pub(super) fn outlived<T>(
        &self,
        stasis: &StasisHost,
        client: &mut Containerd,
        begun: Phase,
        answer: Answer<T>,
    ) -> Result<Option<Answer<T>>> {
        let killed = answer.is_err() && (begun == Phase::Down || self.phase() != begun);
        if !killed {
            return Ok(Some(answer));
        }
        let restarted = self.wait(|state| state.phase == Phase::Second || state.failed);
        ensure!(!restarted?.failed, "containerd has not come back");
        *client = Containerd::connect(&stasis.host)?;
        Ok(None)
    }

    /// Kills containerd when it is time, and starts the next one, unless it is spared.
    pub(super) fn carry_out(
        &self,
        stasis: &StasisHost,
        containerd: Daemon<'_>,
        told: &mut Told,
    ) -> Result<Containerd> {
        let client = self.kill_and_start(stasis, containerd, told);
        let mut state = self.lock();
        match &client {
            Ok(_) if self.fate == Fate::Spared => {}
            Ok(_) => state.phase = Phase::Second,
            Err(_) => state.failed = true,
        }
        self.changed.notify_all();
        client
    }

    fn kill_and_start(
        &self,
        stasis: &StasisHost,
        containerd: Daemon<'_>,
        told: &mut Told,
    ) -> Result<Containerd> {
        {
            let mut reached = self.wait(|state| state.done >= self.at || state.failed)?;
            ensure!(!reached.failed, "a caller has failed");
            if self.fate == Fate::Spared {
                return Containerd::connect(&stasis.host);
            }
            reached.phase = Phase::Down;
        }
        containerd.kill()?;
        stasis.host.containerd()?;
        let client = Containerd::connect(&stasis.host)?;
        told.listen_again(&client)?;
        Ok(client)
    }

    fn wait(&self, done: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>> {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), DEADLINE, |state| !done(state));
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(!timeout.timed_out(), "within 300 s no more than {state:?}");
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
