//! A call of Wait.

use std::sync::Arc;

use crate::task::Task;

/// Someone who waits for the end of a task; ttrpc drops the handler when the connection is lost.
pub(super) struct Waiter {
    task: Arc<Task>,
    is_answered: bool,
}

impl Waiter {
    /// Someone who waits for this one.
    pub(super) fn of(task: &Arc<Task>) -> Self {
        Self {
            task: Arc::clone(task),
            is_answered: false,
        }
    }

    /// Records that the caller is answered, since the task has ended.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.is_answered {
            self.task.waiter_has_gone();
        }
    }
}
