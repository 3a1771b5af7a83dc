//! Operations on all CUDA processes of a container together.

use std::io::{self, Write};
use std::sync::Arc;

use stasis_config::Settings;
use stasis_engine::container::Container;
use stasis_engine::context::Context;
use stasis_engine::suspend::{self, Asked, Done, Order, carry_out, limits, query_members};
use stasis_gpu::cuda::failure::{ProcessFailure, Step};
use stasis_gpu::cuda::watchdog::WatchedDriver;
use stasis_gpu::cuda::{CudaDriver, CudaState, Driver};
use stasis_host::cancel::Cancel;
use stasis_linux::ProcessRef;
use stasis_locate::locate;

use super::arguments::{Arguments, Operation};
use super::{Error, NAME, word};

/// Carries the operation out and returns its answer: a line for each process of a query.
pub(super) fn run(settings: Settings, arguments: &Arguments) -> Result<String, Error> {
    let id = arguments.target.container.as_deref().unwrap_or_default();
    let found = locate(id, arguments.root.as_deref())?;
    let context = found.context(settings, Cancel::on_signals()?);
    let asked = match arguments.operation() {
        Operation::Step(action) => Asked::Step(action),
        Operation::Toggle => Asked::Toggle,
        Operation::State => {
            let state = |_: &dyn Driver, _: &ProcessRef, state| Ok(word(state));
            return answer(&context, &found.container, state);
        }
        Operation::RestoreThread => return answer(&context, &found.container, restore_thread),
    };
    let order = Order {
        asked,
        lock_timeout: arguments.lock_timeout(),
        map: arguments.map(),
    };
    let mut done = Done::default();
    let changed = carry_out(context, found.container, order, &mut done);
    for note in done.notes {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "{NAME}: {note}");
    }
    changed?;
    Ok(String::new())
}

fn answer(
    context: &Context,
    container: &Container,
    value: impl Fn(&dyn Driver, &ProcessRef, CudaState) -> Result<String, Error>,
) -> Result<String, Error> {
    let cuda = CudaDriver::open(context.settings.driver.libcuda.as_deref())?;
    let driver = WatchedDriver::new(Arc::new(cuda), limits(context));
    let mut answer = String::new();
    for (process, state) in query_members(container, &driver)? {
        let value = value(&driver, &process, state)?;
        answer += &format!("{} {value}\n", process.pid());
    }
    Ok(answer)
}

fn restore_thread(
    driver: &dyn Driver,
    process: &ProcessRef,
    _: CudaState,
) -> Result<String, Error> {
    let thread = driver.restore_thread(process);
    let fault = |error| ProcessFailure::of(Step::Query, process, error);
    Ok(thread
        .map_err(|error| suspend::Error::Untouched(fault(error)))?
        .to_string())
}
