//! The tasks of the shim, by their ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use containerd_shim::api::CreateTaskRequest;

use crate::service::messages;
use crate::task::create::create;
use crate::task::error::{Result, TaskError};
use crate::task::exec_process::Snapshot;
use crate::task::{ShimContext, Task};

/// The tasks of the shim.
#[derive(Debug, Clone)]
pub(super) struct Tasks {
    context: ShimContext,
    entries: Arc<Mutex<HashMap<String, Entry>>>,
}

/// The state of an id.
#[derive(Debug, Clone)]
enum Entry {
    /// A task of this id is being created.
    Reserved,
    /// The task exists.
    Created(Arc<Task>),
}

impl Tasks {
    /// No tasks yet.
    pub(super) fn new(context: ShimContext) -> Self {
        Self {
            context,
            entries: Arc::new(Mutex::new(HashMap::new())),
        }
    }

    /// The task with an id.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Task>> {
        match self.entries().get(id) {
            Some(Entry::Created(task)) => Ok(Arc::clone(task)),
            _ => Err(TaskError::NotFound(format!("task {id}"))),
        }
    }

    /// Whether no task exists or is being created.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Creates a task; returns its pid, which is 0 if Start will restore it.
    pub(super) async fn create(&self, request: &CreateTaskRequest) -> Result<u32> {
        let taken = self.entries().insert(request.id.clone(), Entry::Reserved);
        if let Some(taken) = taken {
            self.entries().insert(request.id.clone(), taken);
            return Err(TaskError::AlreadyExists(format!("task {}", request.id)));
        }
        let task = match create(request, &self.context).await {
            Ok(task) => task,
            Err(error) => {
                self.entries().remove(&request.id);
                return Err(error);
            }
        };
        let pid = task.snapshot().pid;
        self.entries()
            .insert(request.id.clone(), Entry::Created(Arc::clone(&task)));
        task.events().publish(messages::task_create(request, pid));
        Ok(pid)
    }

    /// Deletes a task.
    pub(super) async fn delete(&self, task: &Arc<Task>) -> Result<Snapshot> {
        let snapshot = task.delete().await?;
        self.entries().remove(&task.id);
        task.events()
            .publish(messages::task_delete(&task.id, snapshot));
        Ok(snapshot)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
