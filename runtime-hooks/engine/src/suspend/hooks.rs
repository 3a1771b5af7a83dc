//! Tells the program of a container that its GPUs are taken, and when they are back.

use std::sync::PoisonError;
use std::time::Instant;

use stasis_gpu::cuda::process_set::ProcessStates;

use super::{Error, Suspension, query_members};
use crate::container::hooks::Hooks;
use crate::context::RuntimeLocation;
use crate::low_level::hook::pending::{self, RanHook};
use crate::low_level::hook::{HookError, Run, Unsuccessful};

impl Suspension {
    /// Suspends processes that run, once the hook of their container has been run.
    pub(super) fn suspend_running(&self, members: &ProcessStates) -> Result<(), Error> {
        let hooks = Hooks::of(&self.context.settings.hooks, &self.container);
        let hooks = hooks.map_err(Error::refused)?;
        if hooks.all().next().is_none() {
            return self.suspend(members);
        }
        let inventory = self.inventory()?;
        if hooks.before_checkpoint.is_none() {
            // Otherwise the program may remove them.
            self.refuse_blockers(members, &inventory)?;
        }
        let intent = self.intent(members, &inventory)?;
        let place = self.context.place_found()?;
        self.operation.record(&intent)?;
        let told = self.tell(&place, &hooks);
        // It may have given GPU memory back, ended processes or started others.
        let looked = told.and_then(|()| {
            let members = query_members(&self.container, &self.driver)?;
            let (inventory, intent) = self.look(&members)?;
            Ok((members, inventory, intent))
        });
        match looked {
            Ok((members, inventory, intent)) => self.suspend_found(&members, &inventory, &intent),
            Err(error) => {
                self.leave(&intent, &[]);
                Err(error)
            }
        }
    }

    fn tell(&self, place: &RuntimeLocation, hooks: &Hooks) -> Result<(), Error> {
        let operation = &self.operation;
        if let Some(hook) = &hooks.after_restore {
            pending::record(operation, place, hook)?;
        }
        let Some(hook) = &hooks.before_checkpoint else {
            return Ok(());
        };
        let run = Run {
            place,
            operation,
            container: &self.container,
            hook,
        };
        let began = Instant::now();
        let ran = run.run(&self.context.cancel);
        let note = ran.as_ref().ok().cloned().flatten();
        self.ran(RanHook {
            phase: hook.when.phase(),
            took: began.elapsed(),
            note,
        });
        Ok(ran.map(drop)?)
    }

    /// Runs the hook that a container is owed whose processes have their GPU again.
    pub(super) fn run_after_restore(&self) {
        if let Some(ran) = pending::run_after_restore(&self.operation, &self.container) {
            self.ran(ran);
        }
    }

    fn ran(&self, hook: RanHook) {
        let mut ran = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        ran.push(hook);
    }
}

impl From<HookError> for Error {
    fn from(error: HookError) -> Self {
        match error.what {
            Unsuccessful::Cancelled => Self::Cancelled { lost: Vec::new() },
            _ => Self::Hook(error),
        }
    }
}
