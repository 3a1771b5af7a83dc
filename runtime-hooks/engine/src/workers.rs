//! The processes that our programs start of themselves, for work that goes on after their caller
//! has its answer, or that must not be cut off with the caller.

use stasis_gpu::gpu_path::detached::StandBy;
use stasis_gpu::gpu_path::detached::process::DetachedProcess;
use stasis_gpu::gpu_path::process::GpuCopy;
use stasis_gpu::gpu_path::self_test::SelfTest;

use crate::container::inherited_devices::Replacer;
use crate::low_level::hook::process::HookProcess;
use crate::recovery::keeper::Keeper;

/// A kind of such processes: `Some` if this process is one, with whether it has done its work.
pub type Worker = fn() -> Option<bool>;

const PROCESSES: [Worker; 7] = [
    || Some(Keeper::of_this_process()?.run().is_ok()),
    || Some(Replacer::of_this_process()?.run().is_ok()),
    || Some(GpuCopy::of_this_process()?.run().is_ok()),
    || Some(DetachedProcess::of_this_process()?.run().is_ok()),
    || Some(StandBy::of_this_process()?.run().is_ok()),
    || Some(HookProcess::of_this_process()?.run().is_ok()),
    || SelfTest::of_this_process()?.run(),
];

/// Does the work of this process, if either program started it as one of these; returns the exit
/// code.
#[must_use]
pub fn run() -> Option<u8> {
    run_one_of(&PROCESSES)
}

/// Does the work of this process, if it is of one of these kinds; returns the exit code.
#[must_use]
pub fn run_one_of(workers: &[Worker]) -> Option<u8> {
    let is_done = workers.iter().find_map(|worker| worker())?;
    Some(u8::from(!is_done))
}
