//! `stasis checkpoint --dry-run`: whether it would begin, and what it is expected to take.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use stasis_config::{BlockerKind, Settings};

use super::checkpoint_way::{CheckpointWay, NoWay};
use super::command::EngineCommand;
use super::outcome::Outcome;
use crate::checkpoint::disk_space::MostWritten;
use crate::cli::answer::amount::size;
use crate::cli::answer::name;
use crate::cli::check::{Blocker, CheckError, DeclaredHooks, Report};
use crate::cli::locate::Located;
use crate::cli::locate::engine::Engine;
use crate::cli::log::past::{Next, Past, Predicted};
use crate::error::kind::Kind;
use crate::error::{Refusal, chain};
use crate::image::disk_space::free;
use crate::request::AfterDump;

/// What a checkpoint would meet.
#[derive(Debug, Serialize)]
pub(super) struct DryRun {
    name: String,
    container: Option<String>,
    engine: Option<Engine>,
    /// The engine's command; `None` if there is no way.
    command: Option<EngineCommand>,
    /// Where the image would be, as the engine names it.
    image: Option<String>,
    /// Whether a checkpoint would begin now.
    begins: bool,
    /// What is in the way of it.
    blockers: Vec<Blocker>,
    /// The kind with which it would be refused.
    kind: Option<Kind>,
    /// Why, if not for a blocker.
    error: Option<String>,
    /// What would be run in the container.
    hooks: DeclaredHooks,
    /// What it holds on GPUs.
    gpu_bytes: u64,
    predicted_checkpoint: Option<Predicted>,
    /// Room where its GPU contents would go: in the image, or apart from it.
    room: Option<Room>,
    notes: Vec<String>,
    /// What CRIU would dump of its GPU contents.
    #[serde(skip)]
    by_criu_bytes: u64,
}

/// Room for GPU contents.
#[derive(Debug, Serialize)]
struct Room {
    directory: PathBuf,
    free_bytes: u64,
}

impl DryRun {
    /// `report` is what the pre-flight has found.
    pub(super) fn of(
        settings: &Settings,
        located: &Located,
        report: Report,
        begun: Outcome,
        way: Result<CheckpointWay, NoWay>,
        after: AfterDump,
        past: &Past,
    ) -> Result<Self, CheckError> {
        let of_gpus = report.processes.iter().flat_map(|process| &process.gpus);
        let bytes = of_gpus.map(|gpu| gpu.memory_bytes.unwrap_or_default());
        let gpu_bytes = bytes.fold(0, u64::saturating_add);
        let mut answer = Self {
            name: begun.name,
            container: begun.container,
            engine: begun.engine,
            command: None,
            image: None,
            begins: true,
            blockers: Vec::new(),
            kind: None,
            error: None,
            hooks: DeclaredHooks::default(),
            gpu_bytes,
            predicted_checkpoint: past.predicted(Next::Checkpoint, located.container.id()),
            room: None,
            notes: Vec::new(),
            by_criu_bytes: report.by_criu_bytes,
        };
        answer.judge(report, after);
        match way {
            Ok(way) => {
                answer.ask_for_room(settings, located, way.directory.as_ref())?;
                answer.command = Some(way.command);
                answer.image = way.image;
            }
            Err(no_way) => answer.refuse(no_way.kind(), no_way.to_string()),
        }
        Ok(answer)
    }

    /// What `exec` started ends with the container, and is in the way of nothing else.
    fn judge(&mut self, report: Report, after: AfterDump) {
        let mut blockers = report.blockers;
        blockers.retain(|blocker| {
            let is_exec = blocker.finding.kind == BlockerKind::ExecSession;
            !(blocker.allowed || is_exec && after == AfterDump::LeaveRunning)
        });
        self.blockers = blockers;
        self.notes = report.notes;
        self.hooks = report.hooks;
        if !self.blockers.is_empty() {
            self.begins = false;
            self.kind = Some(Kind::Blocked);
        }
        if let (Some(refusal), Some(kind)) = (report.refusal, report.kind) {
            self.refuse(kind, refusal);
        }
    }

    fn refuse(&mut self, kind: Kind, error: String) {
        self.begins = false;
        self.kind.get_or_insert(kind);
        self.error.get_or_insert(error);
    }

    /// `directory` is that of the image, where it is known.
    fn ask_for_room(
        &mut self,
        settings: &Settings,
        located: &Located,
        directory: Option<&PathBuf>,
    ) -> Result<(), CheckError> {
        let apart = settings.gpu_contents.directory();
        let wanted = apart.or(directory.map(PathBuf::as_path));
        self.room = wanted.and_then(|wanted| {
            let free_bytes = free(wanted).ok().flatten()?;
            let directory = wanted.to_owned();
            Some(Room {
                directory,
                free_bytes,
            })
        });
        let Some(directory) = directory else {
            return Ok(());
        };
        let (memory, container) = (&settings.gpu_contents, &located.container);
        let most = MostWritten::of(memory, container, self.gpu_bytes, self.by_criu_bytes);
        let most = most.map_err(Refusal::from)?;
        if let Err(full) = most.admit_to_image(settings, directory) {
            self.refuse(Kind::NoSpace, chain(&full));
        }
        Ok(())
    }

    pub(super) fn would_begin(&self) -> bool {
        self.begins
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let container = name(&self.name);
        for blocker in &self.blockers {
            writeln!(f, "{blocker}")?;
        }
        for hook in self.hooks.all() {
            writeln!(f, "{hook}")?;
        }
        for note in &self.notes {
            writeln!(f, "{}", name(note))?;
        }
        if let Some(error) = &self.error {
            writeln!(f, "{}", name(error))?;
        }
        if let Some(command) = &self.command {
            writeln!(f, "command: {command}")?;
        }
        if let Some(predicted) = &self.predicted_checkpoint {
            let (text, from) = (predicted.text(), predicted.from);
            writeln!(f, "expected: {text}, by the last {from}")?;
        }
        if let Some(Room {
            directory,
            free_bytes,
        }) = &self.room
        {
            let place = name(&directory.display());
            writeln!(f, "room: {} free for {place}", size(*free_bytes))?;
        }
        let held = size(self.gpu_bytes);
        match self.kind {
            Some(kind) => write!(f, "{container}: a checkpoint would be refused [{kind}]"),
            None => write!(
                f,
                "{container}: a checkpoint would begin, with {held} of GPU memory"
            ),
        }
    }
}
