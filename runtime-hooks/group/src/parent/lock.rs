//! One lock for the processes of all containers: ranks wait for each other in collectives, also
//! those of different containers (`cuda/lock`).
//!
//! Their operations have recorded each process's earlier state, and wait. So nothing is to be
//! recorded here: if this process is killed, each operation brings its own processes back.

use std::error::Error;
use std::sync::Arc;

use stasis_engine::checkpoint::plan::query_again;
use stasis_engine::container::Container;
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

use super::{Child, Why};

/// A container with processes to lock.
struct Locked {
    driver: Arc<dyn Driver>,
    container: Container,
}

/// Locks all of them. The operations meet each process LOCKED, and go on from there.
///
/// # Errors
/// [`Why::Lock`]: all processes are unlocked again.
pub(super) fn lock_all(children: &[Child]) -> Result<(), Why> {
    let (mut containers, mut initial_state) = (Vec::new(), InitialState::default());
    for child in children {
        let context = &child.context;
        let intent = peek(
            &context.settings.paths.state_dir,
            &context.root,
            &child.container,
        );
        // A container without GPU state has none.
        if let Some(intent) = intent.map_err(|error| failed(&error, error.kind()))? {
            initial_state.add(intent.initial_state());
            containers.push(to_lock(child)?);
        }
    }
    let (Some(first), Some(child)) = (containers.first(), children.first()) else {
        return Ok(());
    };
    let deadline = child.context.settings.deadlines.lock();
    let locked = lock::lock_all(&*first.driver, deadline, &initial_state, || {
        query_all(&containers)
    });
    locked
        .map(drop)
        .map_err(|error| failed(&error, error.fault.kind()))
}

fn to_lock(child: &Child) -> Result<Locked, Why> {
    let (context, id) = (&child.context, &child.container);
    let container = Container::load(context.low_level.flavor, &context.root, id);
    let container = container.map_err(|error| failed(&error, error.kind()))?;
    let driver = open_driver(context, id).map_err(|error| failed(&error, error.kind()))?;
    Ok(Locked {
        driver: Arc::new(driver),
        container,
    })
}

fn failed(error: &dyn Error, kind: Kind) -> Why {
    Why::Lock {
        text: chain(error),
        kind,
    }
}

fn query_all(containers: &[Locked]) -> Result<ProcessStates, ProcessFailure> {
    let mut all = ProcessStates::new();
    for one in containers {
        all.extend(query_again(&*one.driver, &one.container)?);
    }
    Ok(all)
}
