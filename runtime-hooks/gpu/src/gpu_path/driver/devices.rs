//! Makes the addresses of devices readable while a process is checkpointed (`stasis_injection`,
//! `readable`): a thread that looks there goes on.

use std::io;

use stasis_host::deadline::{PROC, within};
use stasis_injection::{Span, devices_of, unreadable};
use stasis_linux::ProcessRef;

use super::{CopyingDriver, LIMIT};
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::process::{GpuCopy, VERB};

impl CopyingDriver {
    /// Finds where a process has devices mapped that the driver is about to unmap.
    pub(super) fn devices(&self, process: &ProcessRef) -> Vec<Span> {
        let looked_at = process.clone();
        let found = || within(PROC, move || devices_of(&looked_at))?;
        found().unwrap_or_else(|error: io::Error| {
            self.note_unreadable(process, &error);
            Vec::new()
        })
    }

    /// Makes these addresses of a checkpointed process readable. The injected code has done so
    /// already, if the driver called it. A process that cannot be entered stays as the driver left
    /// it, with a note: only few programs look there.
    pub(super) fn make_readable(&self, process: &ProcessRef, devices: &[Span]) {
        let made = || -> io::Result<()> {
            let (looked_at, places) = (process.clone(), devices.to_vec());
            let left = within(PROC, move || unreadable(&looked_at, &places))??;
            if left.is_empty() {
                return Ok(());
            }
            let job = GpuCopy::MakeReadable(ProcessId::of(process), left);
            Copier::start(VERB, &job)?.answer(LIMIT)
        };
        if let Err(error) = made() {
            self.note_unreadable(process, &error);
        }
    }

    fn note_unreadable(&self, process: &ProcessRef, error: &io::Error) {
        let note = format!(
            "a thread of {process} that asks for the state of its GPU while that is away may end \
             it: what stands in for the device could not be made readable ({error})"
        );
        self.state().copying.notes.push(note);
    }
}
