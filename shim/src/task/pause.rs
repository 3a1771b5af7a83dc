//! Pause and Resume: freezes and thaws a task.

use containerd_shim::protos::events::task::{TaskPaused, TaskResumed};

use crate::task::Task;
use crate::task::error::Result;
use crate::task::state::State;

impl Task {
    /// Freezes it.
    pub(crate) async fn pause(&self) -> Result<()> {
        let _no_starts = self.without_exec_starts().await?;
        let _lock = self.verb_lock.lock().await;
        self.record().state.may_pause()?;
        self.runtime.pause(&self.id).await?;
        self.set_state(State::Paused);
        self.events().publish(TaskPaused {
            container_id: self.id.clone(),
            ..TaskPaused::default()
        });
        Ok(())
    }

    /// Thaws it.
    pub(crate) async fn resume(&self) -> Result<()> {
        let _lock = self.verb_lock.lock().await;
        self.record().state.may_resume()?;
        self.runtime.resume(&self.id).await?;
        self.set_state(State::Running);
        self.events().publish(TaskResumed {
            container_id: self.id.clone(),
            ..TaskResumed::default()
        });
        Ok(())
    }

    /// Enters a state after a verb, unless the task has ended or been deleted meanwhile.
    fn set_state(&self, state: State) {
        let mut record = self.record();
        if matches!(
            record.state,
            State::Running | State::Paused | State::Created
        ) {
            record.state = state;
        }
    }
}
