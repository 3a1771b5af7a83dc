//! A call of the driver that takes contents which are still being loaded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use stasis_linux::ProcessRef;

use super::LIMIT;
use crate::cuda::CudaError;
use crate::cuda::process_set::arrivals::{Arrivals, News};
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::process::Step;

/// Makes the call, and reports to the program meanwhile what has been loaded. If the reporting
/// process was killed, calls `release` once all is loaded: then no thread waits any more.
pub(super) fn while_they_arrive(
    process: &ProcessRef,
    copier: &mut Copier,
    arrivals: &Arrivals,
    call: impl FnOnce() -> Result<(), CudaError>,
    release: impl FnOnce() + Send,
) -> Result<(), CudaError> {
    let has_returned = AtomicBool::new(false);
    thread::scope(|scope| {
        let says = scope.spawn(|| {
            let returned = || has_returned.load(Ordering::Relaxed);
            if !say_what_arrives(process, copier, arrivals, returned) {
                arrivals.all_are_there();
                release();
            }
        });
        let result = call();
        has_returned.store(true, Ordering::Relaxed);
        // A panic of the thread becomes one of the scope.
        drop(says);
        result
    })
}

/// Returns whether the program has received everything, or needs it no more.
fn say_what_arrives(
    process: &ProcessRef,
    copier: &mut Copier,
    arrivals: &Arrivals,
    is_enough: impl Fn() -> bool,
) -> bool {
    let process = ProcessId::of(process);
    let mut last = None;
    while !is_enough() {
        let missing = match arrivals.news(&process, last) {
            News::None => continue,
            News::Missing(missing) => missing,
            News::Over => 0,
        };
        if copier.step::<()>(Step::Loaded { missing }, LIMIT).is_err() {
            return false;
        }
        if missing == 0 {
            return true;
        }
        last = Some(missing);
    }
    true
}
