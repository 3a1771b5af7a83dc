//! One container that uses a GPU.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use stasis_config::Settings;
use stasis_engine::error::chain;
use stasis_engine::error::kind::Kind;
use stasis_engine::operation::Intent;
use stasis_engine::operation::progress::UnderWay;
use stasis_engine::operation::verb::Verb;
use stasis_gpu::cuda::GpuUuid;
use stasis_gpu::cuda::gpu_use::{GpuBytes, add};
use stasis_gpu::cuda::nvml::Inventory;
use stasis_host::cancel::Cancel;
use stasis_locate::Located;
use stasis_locate::engine::Engine;

use super::state::{ContainerState, Recorded};
use crate::check::{CheckError, CheckReport, Process, check};
use crate::log::past::{LastImage, Past, Predicted};

/// A container that uses a GPU.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: Option<String>,
    pub(crate) engine: Option<Engine>,
    /// The root of its low-level runtime.
    root: PathBuf,
    /// Its first process.
    pid: i32,
    pub(crate) state: ContainerState,
    /// The operation that is under way.
    pub(crate) operation: Option<UnderWay>,
    /// The GPUs that it uses; if it is suspended, the GPUs that it used.
    pub(crate) gpus: Vec<Used>,
    /// Its processes with GPU state; empty while an operation is under way.
    processes: Vec<Process>,
    pub(crate) last_image: Option<LastImage>,
    /// Whether a checkpoint would begin now; `None` if that cannot be told now.
    pub(crate) checkpointable: Option<bool>,
    /// The blockers of a checkpoint.
    pub(crate) blockers: Vec<String>,
    /// The kind with which it would be refused.
    pub(crate) kind: Option<Kind>,
    /// Why that cannot be told, or a checkpoint would be refused, if not for a blocker.
    error: Option<String>,
    pub(crate) predicted_checkpoint: Option<Predicted>,
    pub(crate) predicted_restore: Option<Predicted>,
}

/// A GPU of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Used {
    /// Its number as nvidia-smi shows it.
    pub(crate) index: Option<u32>,
    pub(crate) uuid: GpuUuid,
    /// Bytes that the container holds there, or will hold again.
    pub(crate) memory_bytes: u64,
}

/// Facts known without asking a container.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) settings: Arc<Settings>,
    pub(super) inventory: Inventory,
    pub(super) past: Past,
    pub(super) now: SystemTime,
}

impl Row {
    /// Looks at a container; `None` if it uses no GPU.
    pub(super) fn of(known: &Known, located: &Located) -> Option<Self> {
        let (settings, inventory) = (&known.settings, &known.inventory);
        let recorded = Recorded::of(settings, located);
        let snapshot = located.container.snapshot().ok()?;
        let candidates = snapshot.candidates();
        if candidates.is_empty() && recorded.under_way.is_none() {
            return None;
        }
        let mut row = Self::begun(known, located);
        if let Some(state) = recorded.at_work(located) {
            row.state = state;
        } else {
            row.look(settings, located)?;
        }
        let mut held = GpuBytes::new();
        for listed in candidates
            .iter()
            .flat_map(|process| inventory.uses(process.pid()))
        {
            let bytes = listed.memory_bytes.unwrap_or_default();
            add(&mut held, &GpuBytes::from([(listed.uuid, bytes)]));
        }
        if held.is_empty() {
            // The bytes that a process without its GPU needs are only in the record.
            let intent = recorded.intent.iter();
            for process in intent.flat_map(Intent::processes) {
                add(&mut held, &process.gpu_bytes());
            }
        }
        row.gpus = used(&held, inventory);
        row.operation = recorded.under_way;
        Some(row)
    }

    /// Makes the row from facts known without a query of processes or driver.
    fn begun(known: &Known, located: &Located) -> Self {
        let (container, id) = (&located.container, located.container.id());
        let (past, called) = (&known.past, located.known());
        Self {
            id: id.to_owned(),
            name: called.name,
            engine: called.engine,
            root: located.root.clone(),
            pid: container.init().pid(),
            state: ContainerState::Unknown,
            operation: None,
            gpus: Vec::new(),
            processes: Vec::new(),
            last_image: past.last_image(id, known.now),
            checkpointable: None,
            blockers: Vec::new(),
            kind: None,
            error: None,
            predicted_checkpoint: past.predicted(Verb::Checkpoint, id),
            predicted_restore: past.predicted(Verb::Restore, id),
        }
    }

    /// Makes the row of a container that cannot be inspected.
    pub(super) fn unknown(known: &Known, located: &Located, why: String) -> Self {
        Self {
            kind: Some(Kind::Hung),
            error: Some(why),
            ..Self::begun(known, located)
        }
    }

    /// Asks the driver and the pre-flight; `None` if no process uses CUDA.
    fn look(&mut self, settings: &Settings, located: &Located) -> Option<()> {
        let context = located.context(settings.clone(), Cancel::not_needed());
        match check(&context, &located.container, &BTreeSet::new()) {
            Ok(mut report) => {
                report.ask_engine(settings, located);
                self.fill(located, report)
            }
            Err(error) => {
                self.kind = Some(error.kind());
                if let CheckError::Paused(_) = error {
                    self.state = ContainerState::Paused;
                }
                self.error = Some(chain(&error));
                Some(())
            }
        }
    }

    fn fill(&mut self, located: &Located, report: CheckReport) -> Option<()> {
        let mut processes = report.processes;
        processes.retain(|process| process.cuda.is_some());
        if processes.is_empty() && report.refusal.is_none() {
            return None;
        }
        let states = processes.iter().filter_map(|process| process.cuda);
        self.state = ContainerState::at_rest(located, states);
        self.checkpointable = Some(report.checkpointable);
        let blockers = report.blockers.iter().filter(|blocker| !blocker.allowed);
        let mut blockers: Vec<String> = blockers
            .map(|blocker| blocker.finding.kind.to_string())
            .collect();
        blockers.dedup();
        self.blockers = blockers;
        self.kind = report.kind;
        self.error = report.refusal;
        self.processes = processes;
        Some(())
    }

    /// Returns all bytes that it holds on GPUs.
    pub(crate) fn gpu_bytes(&self) -> u64 {
        let bytes = self.gpus.iter().map(|gpu| gpu.memory_bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

fn used(held: &GpuBytes, inventory: &Inventory) -> Vec<Used> {
    let mut used: Vec<Used> = held
        .iter()
        .map(|(uuid, bytes)| Used {
            index: inventory.facts.get(uuid).map(|facts| facts.index),
            uuid: *uuid,
            memory_bytes: *bytes,
        })
        .collect();
    used.sort_by_key(|gpu| (gpu.index.is_none(), gpu.index));
    used
}
