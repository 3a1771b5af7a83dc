//! One lock for the processes of all containers: ranks wait for each other in collectives, also
//! those of different containers (`cuda/lock`).
//!
//! Their operations have recorded each process's earlier state, and wait. So nothing is to be
//! recorded here: if this process is killed, each operation brings its own processes back.

use std::sync::Arc;

use stasis_config::Settings;
use stasis_engine::checkpoint::plan::query_again;
use stasis_engine::container::Container;
use stasis_engine::context::Context;
use stasis_engine::error::chain;
use stasis_engine::error::classify::Classified;
use stasis_engine::error::kind::Kind;
use stasis_engine::operation::peek;
use stasis_engine::preflight::cuda_processes::open_driver;
use stasis_gpu::cuda::Driver;
use stasis_gpu::cuda::failure::ProcessFailure;
use stasis_gpu::cuda::lock;
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::process_set::initial_state::InitialState;
use stasis_host::cancel::Cancel;

use super::members::Member;

/// A container with processes to lock.
struct Locked {
    driver: Arc<dyn Driver>,
    container: Container,
}

/// Locks all of them. The operations meet each process LOCKED, and go on from there.
///
/// # Errors
/// The message, and its kind; all processes are unlocked again.
pub(super) fn lock_all(settings: &Settings, members: &[Member]) -> Result<(), (String, Kind)> {
    let (mut containers, mut initial_state) = (Vec::new(), InitialState::default());
    for member in members {
        let located = &member.located;
        let id = located.container.id();
        let intent = peek(&settings.paths.state_dir, &located.root, id);
        let Some(intent) = intent.map_err(|error| (chain(&error), error.kind()))? else {
            // A container without GPU state.
            continue;
        };
        initial_state.add(intent.initial_state());
        let context = located.context(settings.clone(), Cancel::not_needed());
        containers.push(to_lock(&context, id)?);
    }
    let Some(first) = containers.first() else {
        return Ok(());
    };
    let deadline = settings.deadlines.lock();
    let locked = lock::lock_all(&*first.driver, deadline, &initial_state, || {
        query_all(&containers)
    });
    locked
        .map(drop)
        .map_err(|error| (chain(&error), error.fault.kind()))
}

fn to_lock(context: &Context, id: &str) -> Result<Locked, (String, Kind)> {
    let container = Container::load(context.low_level.flavor, &context.root, id);
    let container = container.map_err(|error| (chain(&error), error.kind()))?;
    let driver = open_driver(context, id).map_err(|error| (chain(&error), error.kind()))?;
    Ok(Locked {
        driver: Arc::new(driver),
        container,
    })
}

fn query_all(containers: &[Locked]) -> Result<ProcessStates, ProcessFailure> {
    let mut all = ProcessStates::new();
    for one in containers {
        all.extend(query_again(&*one.driver, &one.container)?);
    }
    Ok(all)
}
