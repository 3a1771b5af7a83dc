//! `stasis check`: runs only the pre-flight. It queries the driver and changes nothing.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use stasis_config::{BlockerKind, Settings};
use stasis_linux::Snapshot;
use stasis_linux::cgroup::FreezerState;
use stasis_linux::snapshot::{Member, Origin};

use crate::cli::locate::LocateError;
use crate::container::Container;
use crate::container::ContainerError;
use crate::context::Context;
use crate::cuda::OpenError;
use crate::cuda::nvml::{Inventory, ListedUse};
use crate::error::kind::Kind;
use crate::error::{Refusal, chain};
use crate::operation::{OperationError, refuse_under_way};
use crate::preflight::blocker::{Finding, consequence, way_out};
use crate::preflight::cuda_processes::{CudaMembers, cuda_members};
use crate::preflight::exec_sessions;
use crate::preflight::peer_access::PeerAccess;
use crate::preflight::{self, ContainerFacts};

/// The findings of the pre-flight.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The container's id.
    pub container: String,
    /// The root of its low-level runtime.
    pub root: PathBuf,
    /// Whether a checkpoint would begin.
    pub checkpointable: bool,
    /// Why the checkpoint would be refused, if not for a blocker.
    pub refusal: Option<String>,
    /// The kind with which a checkpoint would be refused.
    pub kind: Option<Kind>,
    /// All its processes.
    pub processes: Vec<Process>,
    /// All blockers, also those that the settings allow.
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
    /// The driver's name for its state; `None` without CUDA.
    pub cuda: Option<String>,
    /// Its memory on each GPU.
    pub gpus: Vec<ListedUse>,
    /// Whether `exec` started it: it is in no image, and ends with the container.
    pub exec: bool,
}

/// One blocker of a checkpoint.
#[derive(Debug, Serialize)]
pub struct Blocker {
    /// The process, the kind of blocker and the evidence.
    #[serde(flatten)]
    pub finding: Finding,
    /// The consequence of a checkpoint.
    pub consequence: &'static str,
    /// How to make the container checkpointable.
    pub way_out: String,
    /// Whether the settings allow it.
    pub allowed: bool,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// There is not exactly one running container with that id.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// An operation on the container is under way.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The container cannot be inspected.
    #[error(transparent)]
    Look(#[from] Refusal),
    /// The container is paused, and driver queries would hang.
    #[error(
        "container {0} is paused, and the driver answers nothing for a paused process; resume it \
         and check again (a checkpoint of a paused container does so itself)"
    )]
    Paused(String),
}

/// Runs the pre-flight of a checkpoint.
///
/// # Errors
/// [`CheckError`]; reasons for which a checkpoint would be refused are in the report.
pub fn check(context: &Context, container: &Container) -> Result<Report, CheckError> {
    // An operation that is under way changes the state that a checkpoint would find.
    let state_dir = &context.settings.paths.state_dir;
    refuse_under_way(state_dir, &context.root, container.id())?;
    let snapshot = container.snapshot().map_err(unreadable)?;
    let found = container.cgroup().freezer_state().map_err(Refusal::from)?;
    if found == FreezerState::Frozen && !snapshot.candidates().is_empty() {
        return Err(CheckError::Paused(container.id().to_owned()));
    }
    let mut report = Report {
        container: container.id().to_owned(),
        root: context.root.clone(),
        checkpointable: true,
        refusal: None,
        kind: None,
        processes: Vec::new(),
        blockers: Vec::new(),
    };
    match cuda_members(context, container, &snapshot) {
        Ok(members) => report.fill(context, container, &snapshot, members)?,
        Err(error) => report.refuse(&error.into()),
    }
    // An operation may have begun meanwhile.
    refuse_under_way(state_dir, &context.root, container.id())?;
    Ok(report)
}

fn unreadable(error: std::io::Error) -> Refusal {
    ContainerError::Processes(error).into()
}

impl Report {
    fn fill(
        &mut self,
        context: &Context,
        container: &Container,
        snapshot: &Snapshot,
        cuda: Option<CudaMembers>,
    ) -> Result<(), Refusal> {
        let members = cuda.map(|cuda| cuda.members).unwrap_or_default();
        let inventory = if members.is_empty() {
            // A container without CUDA is checkpointed without a query of the GPUs.
            Inventory::default()
        } else {
            match Inventory::read(&context.settings) {
                Ok(inventory) => inventory,
                Err(error) => {
                    self.refuse(&error.into());
                    return Ok(());
                }
            }
        };
        let facts = ContainerFacts {
            snapshot,
            members: &members,
            inventory: &inventory,
            peer_access: PeerAccess::of(container),
        };
        let describe = |member: &Member| Process {
            pid: member.pid,
            pid_inside: member.pid_inside,
            name: member.name.clone(),
            cuda: facts.state_of(member).map(|state| state.to_string()),
            gpus: inventory.uses(member.pid),
            exec: member.origin == Origin::Exec,
        };
        self.processes = snapshot.members().iter().map(describe).collect();
        let mut found = if members.is_empty() {
            Vec::new()
        } else {
            preflight::find(&facts).map_err(unreadable)?
        };
        exec_sessions::retain_blockers(&mut found, snapshot);
        found.extend(exec_sessions::findings(snapshot));
        for finding in found {
            self.add(finding, &context.settings);
        }
        Ok(())
    }

    fn add(&mut self, finding: Finding, settings: &Settings) {
        let kind = finding.kind;
        let allowed = settings.allows(kind);
        self.checkpointable &= allowed;
        if !allowed {
            self.kind = Some(Kind::Blocked);
        }
        self.blockers.push(Blocker {
            finding,
            consequence: consequence(kind),
            way_out: way_out(kind),
            allowed,
        });
    }

    fn refuse(&mut self, refusal: &Refusal) {
        self.checkpointable = false;
        self.kind = Some(refusal.kind());
        self.refusal = Some(match refusal {
            Refusal::Driver(OpenError::TooOld { .. }) => {
                format!("{}: {}", BlockerKind::DriverVersion, chain(refusal))
            }
            other => chain(other),
        });
    }
}

impl Blocker {
    /// Whether a checkpoint that leaves the container running would begin with it.
    fn is_of_the_end(&self) -> bool {
        self.allowed || self.finding.kind == BlockerKind::ExecSession
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
            if process.exec {
                f.write_str(", started by exec")?;
            }
            writeln!(f)?;
        }
        for blocker in &self.blockers {
            writeln!(f, "{blocker}")?;
        }
        if let Some(refusal) = &self.refusal {
            writeln!(f, "{refusal}")?;
        }
        if let Some(kind) = self.kind {
            let is_of_the_end =
                self.refusal.is_none() && self.blockers.iter().all(Blocker::is_of_the_end);
            let which = if is_of_the_end {
                " that ends the container"
            } else {
                ""
            };
            return write!(f, "a checkpoint{which} would be refused [{kind}]");
        }
        f.write_str(
            if self.processes.iter().all(|process| process.cuda.is_none()) {
                "no process uses CUDA: the low-level runtime would make a plain checkpoint"
            } else {
                "a checkpoint would begin"
            },
        )
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: process {}", self.finding.kind, self.finding)?;
        writeln!(f, "  {}", self.consequence)?;
        write!(f, "  way out: {}", self.way_out)?;
        if self.allowed {
            let setting = self.finding.kind.setting().unwrap_or_default();
            write!(f, "\n  allowed by the settings ({setting})")?;
        }
        Ok(())
    }
}
