//! The conditions that a keeper waits for, without the lock of the container.

use std::fmt;
use std::sync::Arc;

use stasis_gpu::cuda::failure::NoRoom;
use stasis_gpu::cuda::process_set::{can_be_queried, room};
use stasis_gpu::ledger::Reservation;
use stasis_gpu::ledger::gpu_memory::GpuMemory;

use crate::container::{Container, ContainerError};
use crate::context::Context;
use crate::operation::undo::{Begun, Undo, path_in};
use crate::operation::{directory_of, peek};
use crate::preflight::cuda_processes::open_driver;

/// Why processes that were left behind cannot resume yet.
#[derive(Debug)]
pub enum WaitsFor {
    /// Not every process of the container can answer the driver.
    Answers,
    /// A GPU has no room for them.
    Room(NoRoom),
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answers => f.write_str("not every process answers the driver"),
            Self::Room(no_room) => write!(f, "{no_room}"),
        }
    }
}

/// Returns the condition that a record's processes wait for; `None` if the record can be undone
/// now, as that of a container that has ended.
pub fn waits_for(context: &Context, undo: &Undo) -> Option<WaitsFor> {
    if undo.begun != Begun::Waiting {
        return None;
    }
    match undo.container(context) {
        Ok(Some(container)) if container.init().is_gone() => None,
        Ok(Some(container)) => match all_can_answer(&container) {
            Ok(true) => no_room(context, &container).map(WaitsFor::Room),
            _ => Some(WaitsFor::Answers),
        },
        Ok(None) => None,
        Err(_) => Some(WaitsFor::Answers),
    }
}

/// Returns whether all its processes can answer the driver: none is stopped or frozen.
///
/// # Errors
/// The processes cannot be read.
pub fn all_can_answer(container: &Container) -> Result<bool, ContainerError> {
    if !matches!(container.cgroup().is_frozen_or_freezing(), Ok(false)) {
        return Ok(false);
    }
    let snapshot = container.snapshot()?;
    let mut candidates = snapshot.candidates().iter();
    Ok(candidates.all(|process| can_be_queried(process).is_ok()))
}

/// Returns the GPU without room for processes that go back to it. The undoing checks again, and
/// reports other errors.
fn no_room(context: &Context, container: &Container) -> Option<NoRoom> {
    let state_dir = &context.settings.paths.state_dir;
    let intent = peek(state_dir, &context.root, container.id()).ok()??;
    let snapshot = container.snapshot().ok()?;
    let driver = open_driver(context, container.id()).ok()?;
    let directory = directory_of(state_dir, &context.root, container.id());
    let reservation = Reservation::new(state_dir, container.id()).recorded(path_in(&directory));
    let reservation = Arc::new(reservation);
    let gpus = GpuMemory::new(&reservation, context.wait_limit(), &context.settings);
    let driver = driver.with_room(Arc::new(gpus));
    let reserved = room::reserve(&driver, snapshot.candidates(), &intent.initial_state());
    reserved.err().map(room::WithoutRoom::into_cause)
}
