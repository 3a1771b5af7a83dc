//! The hook `after-restore` of a container whose program was notified of a checkpoint: owed as soon
//! as all processes have their GPU again, whichever operation gave it back.
//!
//! The hook is recorded in the operation's directory before the other hook is run, and stays there
//! as long as processes wait for a resume or for the operator. The record is removed after the hook
//! was run, so a hook whose runner is killed is run again.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use stasis_host::cancel::Cancel;
use stasis_host::json_record;

use crate::container::Container;
use crate::container::hooks::{Hook, When};
use crate::context::RuntimeLocation;
use crate::low_level::hook::Run;
use crate::operation::timeline::Timeline;
use crate::operation::{Intent, Operation, OperationError};

const FILE_NAME: &str = "after-restore.json";
/// A command line has 128 KiB at most for each argument, and an annotation's is within a
/// specification of 16 MiB.
const MAX_BYTES: u64 = 64 << 20;

/// A pending hook.
#[derive(Debug, Deserialize)]
struct PendingHook {
    place: RuntimeLocation,
    hook: Hook,
}

/// A hook that was run, for the log.
#[derive(Debug)]
pub struct RanHook {
    pub(crate) phase: &'static str,
    pub(crate) took: Duration,
    pub(crate) note: Option<String>,
}

/// Records the hook.
pub(crate) fn record(
    operation: &Operation,
    place: &RuntimeLocation,
    hook: &Hook,
) -> Result<(), OperationError> {
    let path = path(operation);
    let pending = json!({"place": place, "hook": hook});
    json_record::write(&path, &pending).map_err(OperationError::of_file(&path))
}

/// Runs the pending hook of a container, if there is one: all of its processes have their GPU.
/// The container goes on whatever the result is.
pub(crate) fn run_after_restore(operation: &Operation, container: &Container) -> Option<RanHook> {
    let path = path(operation);
    let pending = json_record::read(&path, MAX_BYTES).transpose()?;
    let began = Instant::now();
    let (phase, ran) = match pending {
        Ok(PendingHook { place, hook }) => {
            let run = Run {
                place: &place,
                operation,
                container,
                hook: &hook,
            };
            // An operation that is asked to end still leaves the program as it was.
            let ran = run.run(&Cancel::not_needed());
            (hook.when.phase(), ran.map_err(|error| error.to_string()))
        }
        Err(error) => {
            let text = format!(
                "the after-restore hook was not run: {}: {error}",
                path.display()
            );
            (When::AfterRestore.phase(), Err(text))
        }
    };
    // A hook that fails is not run again.
    let _ = fs::remove_file(&path);
    Some(RanHook {
        phase,
        took: began.elapsed(),
        note: ran.unwrap_or_else(Some),
    })
}

/// Runs it in a phase of its own, unless some processes are left without their GPU.
pub(crate) fn run_after_restore_in_phase(
    operation: &Operation,
    container: &Container,
    intent: &Intent,
    timeline: &mut Timeline<'_>,
) {
    if !intent.keeps_some_off_gpu() {
        run_in_phase(operation, container, timeline);
    }
}

/// Runs it in a phase of its own: all processes have their GPU.
pub(crate) fn run_in_phase(
    operation: &Operation,
    container: &Container,
    timeline: &mut Timeline<'_>,
) {
    if !path(operation).exists() {
        return;
    }
    let phase = When::AfterRestore.phase();
    let ran = timeline.time(phase, || run_after_restore(operation, container));
    if let Some(note) = ran.and_then(|ran| ran.note) {
        timeline.note(note);
    }
}

fn path(operation: &Operation) -> PathBuf {
    operation.directory().join(FILE_NAME)
}

impl RanHook {
    /// Adds it to the log, as a part of the phase in which it was run, which is the last one.
    pub(crate) fn tell(self, within: &str, timeline: &mut Timeline<'_>) {
        self.add_to(timeline, within);
        if let Some(note) = self.note {
            timeline.note(note);
        }
    }

    /// Adds its time alone.
    pub fn add_to(&self, timeline: &mut Timeline<'_>, within: &str) {
        let name = format!("{within}: {}", self.phase);
        timeline.add(&name, self.took, None);
    }
}
