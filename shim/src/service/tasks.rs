//! The tasks of the shim, by their ids.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use containerd_shim::api::CreateTaskRequest;
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::service::messages;
use crate::task::create::create;
use crate::task::exec_process::Snapshot;
use crate::task::operation::Caller;
use crate::task::{ShimContext, Task};

/// The tasks of the shim.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    context: ShimContext,
    entries: Arc<Mutex<HashMap<String, Entry>>>,
    /// Notified when the shim may end.
    shutdown: Arc<Notify>,
    /// Whether Shutdown came while the last tasks were going, after the last Create.
    shutdown_wanted: Arc<AtomicBool>,
}

/// The state of an id.
#[derive(Debug, Clone)]
enum Entry {
    /// A task of this id is being created.
    Reserved,
    /// So it is, and its caller has given up: it is removed once it exists.
    GivenUp,
    /// The task exists.
    Created(Arc<Task>),
}

impl Tasks {
    /// No tasks yet.
    pub(super) fn new(context: ShimContext, shutdown: Arc<Notify>) -> Self {
        Self {
            context,
            entries: Arc::new(Mutex::new(HashMap::new())),
            shutdown,
            shutdown_wanted: Arc::default(),
        }
    }

    /// The task with an id.
    pub(super) fn get(&self, id: &str) -> Result<Arc<Task>> {
        match self.entries().get(id) {
            Some(Entry::Created(task)) => Ok(Arc::clone(task)),
            _ => Err(Error::NotFound(format!("task {id}"))),
        }
    }

    /// Lets the shim end if it has no task. A caller whose deadline has passed asks once, while its
    /// task is still going: then it ends when that has gone. One that serves other containers of a
    /// pod does not end.
    pub(super) fn shut_down(&self) {
        let all_go = self.entries().values().all(|entry| match entry {
            Entry::Reserved => false,
            Entry::GivenUp => true,
            Entry::Created(task) => task.is_being_deleted.load(Ordering::Relaxed),
        });
        if all_go {
            self.shutdown_wanted.store(true, Ordering::Relaxed);
            self.end_if_unused();
        }
    }

    fn end_if_unused(&self) {
        if self.is_unused() {
            self.shutdown.notify_one();
        }
    }

    /// Whether Shutdown came, and no task has since.
    pub(crate) fn is_unused(&self) -> bool {
        self.shutdown_wanted.load(Ordering::Relaxed) && self.entries().is_empty()
    }

    fn remove(&self, id: &str) {
        self.entries().remove(id);
        self.end_if_unused();
    }

    /// Creates a task; returns its pid, which is 0 if Start will restore it.
    pub(super) async fn create(&self, request: &CreateTaskRequest, caller: Caller) -> Result<u32> {
        let taken = self.entries().insert(request.id.clone(), Entry::Reserved);
        if let Some(taken) = taken {
            self.entries().insert(request.id.clone(), taken);
            return Err(Error::AlreadyExists(format!("task {}", request.id)));
        }
        self.shutdown_wanted.store(false, Ordering::Relaxed);
        let task = match create(request, &self.context, caller).await {
            Ok(task) => task,
            Err(error) => {
                self.remove(&request.id);
                return Err(error);
            }
        };
        let pid = task.snapshot().pid;
        let entry = Entry::Created(Arc::clone(&task));
        let before = self.entries().insert(request.id.clone(), entry);
        task.events().publish(messages::task_create(request, pid));
        if matches!(before, Some(Entry::GivenUp)) {
            log::warn!("{} was deleted while it was created", task.id);
            self.delete(&task).await?;
            return Err(Error::FailedPrecondition(format!(
                "task {} was deleted while it was created",
                task.id
            )));
        }
        Ok(pid)
    }

    /// Logs the tasks, their processes, and what is under way.
    pub(crate) fn log(&self) {
        let entries = self.entries();
        log::warn!("the shim has {} tasks", entries.len());
        for (id, entry) in entries.iter() {
            match entry {
                Entry::Reserved => log::warn!("{id}: being created"),
                Entry::GivenUp => log::warn!("{id}: being created, deleted meanwhile"),
                Entry::Created(task) => task.log(),
            }
        }
        for child in self.context.reaper.awaited() {
            log::warn!("child {child}");
        }
    }

    /// Has a task removed that is being created, once it exists.
    pub(super) fn give_up(&self, id: &str) {
        if let Some(entry @ Entry::Reserved) = self.entries().get_mut(id) {
            *entry = Entry::GivenUp;
        }
    }

    /// Deletes a task.
    pub(super) async fn delete(&self, task: &Arc<Task>) -> Result<Snapshot> {
        task.is_being_deleted.store(true, Ordering::Relaxed);
        let deleted = task.delete().await;
        task.is_being_deleted.store(false, Ordering::Relaxed);
        let snapshot = deleted?;
        task.events()
            .publish(messages::task_delete(&task.id, snapshot));
        self.remove(&task.id);
        Ok(snapshot)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
