//! The processes that our programs start of themselves, for work that goes on after their caller
//! has its answer, or that must not be cut off with it.

use crate::checkpoint::at_stop::push::Push;
use crate::container::inherited_devices::Replacer;
use crate::gpu_path::hole::process::AwayProcess;
use crate::gpu_path::process::GpuCopy;
use crate::gpu_path::self_test::SelfTest;
use crate::image::stopped::push_again::PushAgain;
use crate::low_level::hook::process::HookProcess;
use crate::recovery::keeper::Keeper;
use crate::restore::at_create::pull_process::Pull;

/// Does the work of this process, if it was started as one of those that both programs start;
/// returns the exit code.
#[must_use]
pub fn run() -> Option<u8> {
    let result = if let Some(keeper) = Keeper::of_this_process() {
        keeper.run().is_ok()
    } else if let Some(replacer) = Replacer::of_this_process() {
        replacer.run().is_ok()
    } else if let Some(copy) = GpuCopy::of_this_process() {
        copy.run().is_ok()
    } else if let Some(away) = AwayProcess::of_this_process() {
        away.run().is_ok()
    } else if let Some(hook) = HookProcess::of_this_process() {
        hook.run().is_ok()
    } else if let Some(pull) = Pull::of_this_process() {
        pull.run()
    } else if let Some(push) = Push::of_this_process() {
        push.run()
    } else if let Some(again) = PushAgain::of_this_process() {
        again.run()
    } else {
        SelfTest::of_this_process()?.run()
    };
    Some(u8::from(!result))
}
