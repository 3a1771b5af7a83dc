//! `stasis check`: the pre-flight alone. Nothing is changed, and the driver only asked.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use stasis_config::{BlockerKind, Settings};

use crate::blocker::{Finding, consequence, way_out};
use crate::blockers::{self, Scene};
use crate::cgroup::FreezerState;
use crate::container::Container;
use crate::container::ContainerError;
use crate::cuda::OpenError;
use crate::engine::{CudaMembers, Engine};
use crate::error::{Refusal, chain};
use crate::gpu::{GpuUse, Inventory};
use crate::locate::LocateError;
use crate::operation::{Operation, OperationError};
use crate::process::ProcessRef;

/// What the pre-flight found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The container's id.
    pub container: String,
    /// The root of its low-level runtime.
    pub root: PathBuf,
    /// Whether a checkpoint would begin.
    pub checkpointable: bool,
    /// Why not, if that is none of the blockers.
    pub refusal: Option<String>,
    /// All its processes.
    pub processes: Vec<Process>,
    /// What is in the way, also what the settings allow.
    pub blockers: Vec<Blocker>,
}

/// A process of the container.
#[derive(Debug, Serialize)]
pub struct Process {
    /// The pid in our namespace.
    pub pid: i32,
    /// The pid in the container.
    pub pid_inside: Option<i32>,
    /// Its command name.
    pub name: String,
    /// The driver's word for its state; `None` without CUDA.
    pub cuda: Option<String>,
    /// What it holds on which GPU.
    pub gpus: Vec<GpuUse>,
}

/// One thing in the way of a checkpoint.
#[derive(Debug, Serialize)]
pub struct Blocker {
    /// Who, what, and how it shows.
    #[serde(flatten)]
    pub finding: Finding,
    /// What would happen.
    pub consequence: &'static str,
    /// What can be done.
    pub way_out: String,
    /// Whether the settings allow it.
    pub allowed: bool,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Not one running container of that id.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// An operation on the container is under way.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// It cannot be looked at.
    #[error(transparent)]
    Look(#[from] Refusal),
    /// The driver would not answer.
    #[error(
        "container {0} is paused, and the driver answers nothing for a paused process; resume it \
         and check again (a checkpoint of a paused container does so itself)"
    )]
    Paused(String),
}

/// Looks at a container as a checkpoint would.
///
/// # Errors
/// [`CheckError`]; reasons for which a checkpoint would be refused are in the report.
pub fn check(engine: &Engine, container: &Container) -> Result<Report, CheckError> {
    // Another operation changes what would be seen. Nothing is left behind of this one.
    let state_dir = &engine.settings.paths.state_dir;
    let _operation = Operation::begin(state_dir, &engine.root, container.id())?;
    let processes = container.processes().map_err(unreadable)?;
    let frozen = container.cgroup().freezer_state().map_err(Refusal::from)?;
    if frozen == FreezerState::Frozen {
        for process in &processes {
            if process.may_use_cuda().map_err(unreadable)? {
                return Err(CheckError::Paused(container.id().to_owned()));
            }
        }
    }
    let mut report = Report {
        container: container.id().to_owned(),
        root: engine.root.clone(),
        checkpointable: true,
        refusal: None,
        processes: Vec::new(),
        blockers: Vec::new(),
    };
    match engine.cuda_members(container) {
        Ok(members) => report.fill(engine, container, &processes, members)?,
        Err(refusal) => report.refuse(&refusal),
    }
    Ok(report)
}

fn unreadable(error: std::io::Error) -> Refusal {
    ContainerError::Processes(error).into()
}

impl Report {
    fn fill(
        &mut self,
        engine: &Engine,
        container: &Container,
        processes: &[ProcessRef],
        cuda: Option<CudaMembers>,
    ) -> Result<(), Refusal> {
        let members = cuda.map(|cuda| cuda.members).unwrap_or_default();
        let inventory = if members.is_empty() {
            // A plain container is checkpointed without a look at the GPUs.
            Inventory::default()
        } else {
            match Inventory::read(engine.settings.driver.nvml.as_deref()) {
                Ok(inventory) => inventory,
                Err(error) => {
                    self.refuse(&error.into());
                    return Ok(());
                }
            }
        };
        let scene = Scene {
            processes,
            members: &members,
            inventory: &inventory,
        };
        let tell = |process: &ProcessRef| Process {
            pid: process.pid(),
            pid_inside: container.pid_inside(process),
            name: process.name().to_owned(),
            cuda: scene.state_of(process).map(|state| state.to_string()),
            gpus: inventory.uses(process.pid()),
        };
        self.processes = processes.iter().map(tell).collect();
        if members.is_empty() {
            return Ok(());
        }
        for finding in blockers::find(&scene).map_err(unreadable)? {
            self.add(finding, &engine.settings);
        }
        Ok(())
    }

    fn add(&mut self, finding: Finding, settings: &Settings) {
        let kind = finding.kind;
        let allowed = settings.preflight.allows(kind);
        self.checkpointable &= allowed;
        self.blockers.push(Blocker {
            finding,
            consequence: consequence(kind),
            way_out: way_out(kind),
            allowed,
        });
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.checkpointable = false;
        self.refusal = Some(match refusal {
            Refusal::Driver(OpenError::TooOld { .. }) => {
                format!("{}: {}", BlockerKind::DriverVersion, chain(refusal))
            }
            other => chain(other),
        });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "container {} ({})", self.container, self.root.display())?;
        for process in &self.processes {
            let state = process.cuda.as_deref().unwrap_or("no CUDA");
            write!(f, "  {} {}: {state}", process.pid, process.name)?;
            for gpu in &process.gpus {
                write!(f, ", {}", gpu.uuid)?;
                if let Some(bytes) = gpu.memory_bytes {
                    write!(f, " {} MiB", bytes >> 20)?;
                }
            }
            writeln!(f)?;
        }
        for blocker in &self.blockers {
            writeln!(f, "{blocker}")?;
        }
        if let Some(refusal) = &self.refusal {
            writeln!(f, "{refusal}")?;
        }
        f.write_str(if !self.checkpointable {
            "a checkpoint would be refused"
        } else if self.processes.iter().all(|process| process.cuda.is_none()) {
            "no process uses CUDA: the low-level runtime would make a plain checkpoint"
        } else {
            "a checkpoint would begin"
        })
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: process {}", self.finding.kind, self.finding)?;
        writeln!(f, "  {}", self.consequence)?;
        write!(f, "  way out: {}", self.way_out)?;
        if self.allowed {
            f.write_str("\n  allowed by the settings (preflight.allow)")?;
        }
        Ok(())
    }
}
