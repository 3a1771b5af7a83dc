//! Pause and Resume.

use containerd_shim::protos::events::task::{TaskPaused, TaskResumed};

use crate::error::Result;
use crate::state::State;
use crate::task::Task;

impl Task {
    /// Freezes it.
    pub(crate) async fn pause(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.record().state.may_pause()?;
        self.runtime.pause(&self.id).await?;
        self.settle(State::Paused);
        self.events().publish(TaskPaused {
            container_id: self.id.clone(),
            ..TaskPaused::default()
        });
        Ok(())
    }

    /// Thaws it.
    pub(crate) async fn resume(&self) -> Result<()> {
        let _turn = self.turn.lock().await;
        self.record().state.may_resume()?;
        self.runtime.resume(&self.id).await?;
        self.settle(State::Running);
        self.events().publish(TaskResumed {
            container_id: self.id.clone(),
            ..TaskResumed::default()
        });
        Ok(())
    }

    /// Notes what a verb has brought about, unless the task was ended or taken meanwhile.
    fn settle(&self, state: State) {
        let mut record = self.record();
        if matches!(
            record.state,
            State::Running | State::Paused | State::Created
        ) {
            record.state = state;
        }
    }
}
