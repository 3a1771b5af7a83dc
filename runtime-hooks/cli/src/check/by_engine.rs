//! Blockers of a checkpoint by the container's engine. Operations that call no engine (`stasis
//! checkpoint --group`, `suspend`) do not ask for them.

use std::collections::BTreeSet;

use stasis_config::{BlockerKind, Settings};
use stasis_engine::context::Context;
use stasis_engine::preflight::blocker::{Blockers, Finding};
use stasis_engine::preflight::cuda_processes::cuda_members;
use stasis_engine::request::CriuOption;
use stasis_host::cancel::Cancel;
use stasis_linux::ProcessRef;
use stasis_linux::cgroup::FreezerState;
use stasis_locate::Located;
use stasis_locate::engine::{Engine, Known};

use super::{CheckError, CheckReport, check, docker, packing, runtime};

/// Runs the pre-flight of a checkpoint by the container's engine, with these options.
pub fn check_by_engine(
    settings: &Settings,
    located: &Located,
    options: &BTreeSet<CriuOption>,
) -> Result<CheckReport, CheckError> {
    let context = located.context(settings.clone(), Cancel::not_needed());
    let mut report = check(&context, &located.container, options)?;
    report.ask_engine(settings, located);
    Ok(report)
}

/// Refuses a checkpoint by the container's engine before calling the engine.
pub(crate) fn admit(settings: &Settings, located: &Located) -> Result<(), Blockers> {
    let context = located.context(settings.clone(), Cancel::not_needed());
    let found = findings(located, || uses_cuda(&context, located));
    Blockers::check(found, settings).map(drop)
}

impl CheckReport {
    /// Adds the blockers of its engine, and a note if the engine packs the image.
    pub(crate) fn ask_engine(&mut self, settings: &Settings, located: &Located) {
        let uses_cuda = self.processes.iter().any(|process| process.cuda.is_some());
        for finding in findings(located, || uses_cuda) {
            self.add(finding, settings);
        }
        let bytes = self.gpu_bytes();
        let Known { engine, name } = located.known();
        self.called = name.unwrap_or_else(|| self.container.clone());
        let note = engine.and_then(|engine| packing::note(settings, engine, bytes));
        self.notes.extend(note);
    }
}

/// Without an engine stasis is the container's runtime, and without CUDA any runtime will do.
fn findings(located: &Located, uses_cuda: impl FnOnce() -> bool) -> Vec<Finding> {
    let Some(engine) = located.known().engine else {
        return Vec::new();
    };
    let other = runtime::of_others(&located.container).filter(|_| uses_cuda());
    let other = other.map(|calls| {
        let evidence = format!("calls {}, not stasis-runtime", calls.program.display());
        finding(BlockerKind::OtherRuntime, &calls.by, evidence)
    });
    let docker = match engine {
        Engine::Docker => docker::without_checkpoints(),
        _ => None,
    };
    let docker = docker.map(|daemon| {
        let evidence = "says that it is not experimental".to_owned();
        finding(BlockerKind::DockerExperimental, &daemon, evidence)
    });
    other.into_iter().chain(docker).collect()
}

fn finding(kind: BlockerKind, process: &ProcessRef, evidence: String) -> Finding {
    Finding {
        kind,
        pid: process.pid(),
        name: process.name().to_owned(),
        evidence,
    }
}

/// Returns whether a process of the container has GPU state; true if it cannot be asked.
fn uses_cuda(context: &Context, located: &Located) -> bool {
    let container = &located.container;
    let Ok(snapshot) = container.snapshot() else {
        return true;
    };
    if snapshot.candidates().is_empty() {
        return false;
    }
    if !matches!(container.cgroup().freezer_state(), Ok(FreezerState::Thawed)) {
        return true;
    }
    cuda_members(context, container, &snapshot).map_or(true, |members| members.is_some())
}
