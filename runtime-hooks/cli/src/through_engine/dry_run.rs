//! `stasis checkpoint --dry-run`: whether it would begin, and what it is expected to take.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use stasis_config::Settings;
use stasis_engine::checkpoint::disk_space::MostWritten;
use stasis_engine::error::kind::Kind;
use stasis_engine::error::{Refusal, chain};
use stasis_engine::image::disk_space::free;
use stasis_engine::operation::verb::Verb;
use stasis_engine::operation::{Intent, peek};
use stasis_engine::request::AfterDump;
use stasis_gpu::cuda::gpu_use::gpu_bytes;
use stasis_locate::Located;
use stasis_locate::engine::Engine;

use super::checkpoint_way::CheckpointWay;
use super::command::EngineCommand;
use super::no_way::NoWay;
use super::outcome::Outcome;
use crate::answer::amount::size;
use crate::answer::name;
use crate::check::{CheckError, CheckReport};
use crate::log::past::{Past, Predicted};

/// The expected course of a checkpoint.
#[derive(Debug, Serialize)]
pub(super) struct DryRun {
    name: String,
    engine: Option<Engine>,
    /// The engine's command; `None` if there is no way.
    command: Option<EngineCommand>,
    /// The image's place, as the engine names it.
    image: Option<String>,
    /// The findings of the pre-flight, and of the engine's way.
    #[serde(flatten)]
    report: CheckReport,
    /// Bytes that it holds on GPUs, or in host memory while it is suspended.
    gpu_bytes: u64,
    /// Whether they are in host memory.
    #[serde(skip)]
    is_suspended: bool,
    predicted_checkpoint: Option<Predicted>,
    /// Room in the place of its GPU contents: in the image, or apart from it.
    room: Option<Room>,
}

/// Room for GPU contents.
#[derive(Debug, Serialize)]
struct Room {
    directory: PathBuf,
    free_bytes: u64,
}

impl DryRun {
    /// Makes the answer; `report` has the findings of the pre-flight.
    pub(super) fn of(
        settings: &Settings,
        located: &Located,
        mut report: CheckReport,
        begun: Outcome,
        way: Result<CheckpointWay, NoWay>,
        after: AfterDump,
        past: &Past,
    ) -> Result<Self, CheckError> {
        if after == AfterDump::LeaveRunning {
            report.goes_on();
        }
        let suspended = suspended_bytes(settings, located);
        let mut answer = Self {
            name: begun.name,
            engine: begun.engine,
            command: None,
            image: None,
            gpu_bytes: report.gpu_bytes().max(suspended),
            is_suspended: report.gpu_bytes() == 0 && suspended > 0,
            report,
            predicted_checkpoint: past.predicted(Verb::Checkpoint, located.container.id()),
            room: None,
        };
        match way {
            Ok(way) => {
                answer.ask_for_room(settings, located, way.directory.as_ref())?;
                answer.command = Some(way.command);
                answer.image = way.image;
            }
            Err(no_way) => answer.report.refuse_as(no_way.kind(), no_way.to_string()),
        }
        Ok(answer)
    }

    /// Checks the room; `directory` is the image's, if it is known.
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
        let most = MostWritten::of(memory, container, self.gpu_bytes, self.report.by_criu_bytes);
        let most = most.map_err(Refusal::from)?;
        if let Err(full) = most.admit_to_image(settings, directory) {
            self.report.refuse_as(Kind::NoSpace, chain(&full));
        }
        Ok(())
    }

    pub(super) fn would_begin(&self) -> bool {
        self.report.checkpointable
    }
}

/// Returns the bytes of GPU contents that a suspended container has in host memory.
fn suspended_bytes(settings: &Settings, located: &Located) -> u64 {
    let (state_dir, id) = (&settings.paths.state_dir, located.container.id());
    let recorded = peek(state_dir, &located.root, id).ok().flatten();
    let processes = recorded.as_ref().map(Intent::processes);
    gpu_bytes(processes.iter().flatten())
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let container = name(&self.name);
        self.report.write_obstacles(f)?;
        if let Some(command) = &self.command {
            writeln!(f, "command: {command}")?;
        }
        if let Some(predicted) = &self.predicted_checkpoint {
            writeln!(f, "expected: {}", predicted.text_with_basis())?;
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
        match self.report.kind {
            Some(kind) => write!(f, "{container}: a checkpoint would be refused [{kind}]"),
            None => write!(
                f,
                "{container}: a checkpoint would begin, with {held} of GPU memory{}",
                if self.is_suspended {
                    ", already in host memory"
                } else {
                    ""
                }
            ),
        }
    }
}
