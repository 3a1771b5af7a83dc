//! The process that replaces devices.
//!
//! If the process that makes a thread of a child make a call is killed meanwhile, the child is lost
//! if that thread has no way back (`remote-call`). Callers kill operations, so a process of its own
//! does this: it finishes its work also when the operation is gone.

use std::io::{self, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stasis_gpu::cuda::process_set::initial_state::ProcessId;
use stasis_host::deadline::within;
use stasis_host::respawn;
use stasis_linux::ProcessRef;

use super::replace::{InheritedDevices, Replaced};

/// The time limit for all of them: each has deadlines of its own.
const MOST: Duration = Duration::from_mins(2);
/// The first argument of such a process.
const VERB: &str = "stasis-replace";

/// The children whose devices it replaces.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Replacer(Vec<ProcessId>);

/// The result for one child: `None` if it has ended, or why its devices are as before.
type Answer = Result<Option<Replaced>, String>;

/// Replaces the devices of each of these children; `None` for a child that has ended.
///
/// # Errors
/// The error of the process, which may have replaced some.
pub(super) fn replace_all(children: &[ProcessRef]) -> io::Result<Vec<Answer>> {
    let job = Replacer(children.iter().map(ProcessId::of).collect());
    let (mut answers, write) = io::pipe()?;
    let mut process = respawn::start_with(VERB, &job, [Stdio::null(), write.into()])?;
    let text = within(MOST, move || {
        let mut text = String::new();
        answers.read_to_string(&mut text).map(|_| text)
    });
    // An overdue process is left alone: its end would end the child whose thread it controls.
    let text = text??;
    let status = process.wait()?;
    if !status.success() {
        return Err(io::Error::other(format!("{VERB} ended with {status}")));
    }
    Ok(serde_json::from_str(&text)?)
}

impl Replacer {
    pub(crate) fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-replace")
    }

    /// Replaces the devices, and reports the results.
    pub(crate) fn run(self) -> io::Result<()> {
        let answer = |child: &ProcessId| replace(*child).map_err(|error| error.to_string());
        let answers: Vec<Answer> = self.0.iter().map(answer).collect();
        io::stdout().write_all(&serde_json::to_vec(&answers)?)
    }
}

fn replace(child: ProcessId) -> io::Result<Option<Replaced>> {
    let Some(process) = child.open()? else {
        return Ok(None);
    };
    match InheritedDevices::replace(&process) {
        Err(_) if process.is_gone() => Ok(None),
        replaced => replaced.map(|devices| Some(devices.count())),
    }
}
