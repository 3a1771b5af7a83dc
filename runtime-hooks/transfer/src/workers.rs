//! The processes that `stasis-runtime` starts from the operator's program, which has the client of
//! registries: each has its own job, and goes on if the process that started it has ended.

use stasis_engine::workers::{Worker, run_one_of};
use stasis_lifecycle::at_create::newest::Query;
use stasis_lifecycle::at_create::pull_process::Pull;
use stasis_lifecycle::at_stop::push::Push;
use stasis_lifecycle::stopped::push_again::PushAgain;

use crate::at_stop::{self, again, newest};
use crate::pull::arriving::background;

const PROCESSES: [Worker; 4] = [
    || Some(background::run(Pull::of_this_process()?)),
    || Some(at_stop::run(Push::of_this_process()?)),
    || Some(again::run(PushAgain::of_this_process()?)),
    || Some(newest::run(Query::of_this_process()?)),
];

/// Does the work of this process, if it was started for a transfer; returns the exit code.
#[must_use]
pub fn run() -> Option<u8> {
    run_one_of(&PROCESSES)
}
