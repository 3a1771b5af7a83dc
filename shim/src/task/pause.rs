//! Pause and Resume: freezes and thaws a task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use containerd_shim::api::Status;
use containerd_shim::protos::events::task::{TaskPaused, TaskResumed};
use tokio::time::{sleep, sleep_until};

use crate::error::{Error, Result};
use crate::runtime::programs::resume_deadline;
use crate::task::Task;
use crate::task::state::LifecycleState;

/// How long after a checkpoint its caller may be writing the archive, and resume the task then.
const ARCHIVE: Duration = Duration::from_secs(600);

impl Task {
    /// Freezes it for a caller who waits until `deadline`, if it has one.
    pub(crate) async fn pause(&self, deadline: Option<Instant>) -> Result<()> {
        let _no_starts = self.without_exec_starts().await?;
        let _lock = self.verb_lock.lock().await;
        self.record().state.may_pause()?;
        let paused = self.runtime.pause(&self.id, self.useless()).await;
        let paused = paused.and_then(|()| {
            // In this order: the clean-up after the init process thaws only what it sees paused.
            self.set_state(LifecycleState::Paused);
            match *self.init_exit.borrow() {
                Some(_) => Err(Error::Finished(self.id.clone())),
                None => Ok(()),
            }
        });
        if let Err(Error::Killed { .. } | Error::Finished(_)) = &paused
            && let Err(error) = self.runtime.thaw(&self.id).await
        {
            log::error!("{} may be half paused: {error}", self.id);
        }
        paused?;
        self.record().paused_until = deadline;
        self.events().publish(TaskPaused {
            container_id: self.id.clone(),
            ..TaskPaused::default()
        });
        Ok(())
    }

    /// Thaws it. Callers resume a task once after its checkpoint, and ignore an error: it is
    /// resumed later then.
    pub(crate) async fn resume(self: &Arc<Self>) -> Result<()> {
        let _lock = self.verb_lock.lock().await;
        let resumed = self.resume_locked().await;
        if resumed.is_err() && self.record().checkpointed_paused.take().is_some() {
            self.resume_later(Instant::now());
        }
        resumed
    }

    async fn resume_locked(&self) -> Result<()> {
        self.record().state.may_resume()?;
        self.runtime.resume(&self.id, self.useless()).await?;
        self.set_state(LifecycleState::Running);
        self.record().checkpointed_paused = None;
        self.resumes.send_modify(|resumes| *resumes += 1);
        self.events().publish(TaskResumed {
            container_id: self.id.clone(),
            ..TaskResumed::default()
        });
        Ok(())
    }

    /// Handles that a caller that waited for its end has gone without an answer: containerd was
    /// killed or restarted. If the task was paused for a checkpoint that has just been made, whose
    /// archive the caller would write now, no caller comes back to resume it.
    ///
    /// A task that is only paused stays so: it looks the same as a pause that is meant.
    pub(crate) fn waiter_has_gone(self: &Arc<Self>) {
        let mut record = self.record();
        let is_recent = |at: &mut Instant| at.elapsed() < ARCHIVE;
        if record.checkpointed_paused.take_if(is_recent).is_some() {
            self.resume_later(Instant::now());
        }
    }

    /// Thaws it in a while, once its checkpoint's caller has `gone`, if no caller does; tries until
    /// it succeeds. Callers pause a task, checkpoint it, and resume it; one whose deadline has
    /// passed meanwhile resumes nothing (containerd's client resumes with the context that has
    /// expired).
    pub(crate) fn resume_later(self: &Arc<Self>, gone: Instant) {
        let (task, resumes) = (Arc::clone(self), *self.resumes.borrow());
        // Also while another checkpoint is under way, whose caller has found it paused.
        let is_paused = move |task: &Task| {
            *task.resumes.borrow() == resumes && task.snapshot().status == Status::PAUSED
        };
        tokio::spawn(async move {
            sleep_until(gone.into()).await;
            while is_paused(&task) {
                let Some(wait) = resume_deadline() else {
                    log::error!("{} stays paused: its checkpoint's caller has gone", task.id);
                    return;
                };
                log::error!(
                    "{} is paused after its checkpoint; it is resumed in {} s if nobody does",
                    task.id,
                    wait.as_secs()
                );
                sleep(wait).await;
                let _lock = task.verb_lock.lock().await;
                if !is_paused(&task) {
                    return;
                }
                match task.resume_locked().await {
                    Ok(()) => log::error!("{} was resumed for its checkpoint's caller", task.id),
                    Err(error) => log::error!("{} stays paused: {error}", task.id),
                }
            }
        });
    }

    /// Enters a state after a verb, unless the task has ended or been deleted meanwhile.
    fn set_state(&self, state: LifecycleState) {
        let mut record = self.record();
        if matches!(
            record.state,
            LifecycleState::Running | LifecycleState::Paused | LifecycleState::Created
        ) {
            record.state = state;
        }
    }
}
