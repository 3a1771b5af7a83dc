//! The state of the next calls: their files, their bytes, and notes.

use std::collections::BTreeMap;
use std::sync::Arc;

use stasis_linux::ProcessRef;

use super::into_files::Made;
use crate::cuda::Copying;
use crate::cuda::process_set::arrivals::Arrivals;
use crate::cuda::process_set::initial_state::ProcessId;
use crate::gpu_path::copier::Copier;
use crate::gpu_path::share::Share;

#[derive(Default)]
pub(super) struct DriverState {
    pub(super) made: BTreeMap<ProcessId, Made>,
    pub(super) armed: BTreeMap<ProcessId, Copier>,
    /// Why a process has no file.
    pub(super) alone: BTreeMap<ProcessId, String>,
    /// Bytes of the next checkpoint or restore.
    pub(super) expected: BTreeMap<ProcessId, u64>,
    pub(super) arrivals: Option<Arc<Arrivals>>,
    /// Whether what processes share was to be known at the lock.
    pub(super) is_to_be_surveyed: bool,
    pub(super) copying: Copying,
}

impl DriverState {
    /// The share of a process among those that are expected.
    pub(super) fn share(&self, process: &ProcessRef) -> Share {
        let own = self.expected.get(&ProcessId::of(process));
        own.map_or(Share::WHOLE, |own| {
            Share::new(*own, self.expected.values().sum())
        })
    }
}
