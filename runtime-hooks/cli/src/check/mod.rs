//! `stasis check`: runs only the pre-flight. It queries the driver and changes nothing.

pub(crate) mod by_engine;
mod docker;
mod error;
mod hooks;
mod packing;
mod room;
pub(crate) mod runtime;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use stasis_config::{BlockerKind, Settings};
use stasis_engine::checkpoint::captured::look;
use stasis_engine::checkpoint::plan::judge::{asked, find_blockers};
use stasis_engine::container::criu_configuration::refuse_running;
use stasis_engine::container::hooks::Hooks;
use stasis_engine::container::{Container, ContainerError};
use stasis_engine::context::Context;
use stasis_engine::error::kind::Kind;
use stasis_engine::error::{Refusal, chain};
use stasis_engine::operation::undo::Undo;
use stasis_engine::operation::{directory_of, refuse_under_way};
use stasis_engine::preflight::ContainerFacts;
use stasis_engine::preflight::blocker::{Finding, consequence, way_out};
use stasis_engine::preflight::capabilities::Capabilities;
use stasis_engine::preflight::cuda_processes::{CudaMembers, cuda_members};
use stasis_engine::preflight::exec_sessions;
use stasis_engine::preflight::sharing::peer_access::PeerAccess;
use stasis_engine::preflight::sharing::{Sharing, known_later};
use stasis_engine::request::CriuOption;
use stasis_gpu::cuda::nvml::{Inventory, ListedUse};
use stasis_gpu::cuda::process_set::ProcessStates;
use stasis_gpu::cuda::{CudaState, OpenError};
use stasis_linux::Snapshot;
use stasis_linux::cgroup::FreezerState;
use stasis_linux::snapshot::{Member, Origin};

pub use by_engine::check_by_engine;
pub use error::CheckError;
pub use hooks::DeclaredHooks;

/// The findings of the pre-flight.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// The container's name, or its id if it has none.
    #[serde(skip)]
    pub called: String,
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
    /// Hooks that a checkpoint would run in the container.
    pub hooks: DeclaredHooks,
    /// Notes, e.g. on parts of a checkpoint that would take another way.
    pub notes: Vec<String>,
    /// Bytes of GPU contents that CRIU would dump.
    #[serde(skip)]
    pub(crate) by_criu_bytes: u64,
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
    #[serde(serialize_with = "as_text")]
    pub cuda: Option<CudaState>,
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
    pub way_out: &'static str,
    /// Whether the settings allow it.
    pub allowed: bool,
}

/// Runs the pre-flight of a checkpoint with these options; the container's state is not changed.
///
/// # Errors
/// [`CheckError`]; reasons for which a checkpoint would be refused are in the report.
pub fn check(
    context: &Context,
    container: &Container,
    options: &BTreeSet<CriuOption>,
) -> Result<CheckReport, CheckError> {
    // An operation under way changes the state that a checkpoint would find.
    let state_dir = &context.settings.paths.state_dir;
    refuse_under_way(state_dir, &context.root, container.id())?;
    let snapshot = container.snapshot().map_err(unreadable)?;
    let found = container.cgroup().freezer_state().map_err(Refusal::from)?;
    if found == FreezerState::Frozen && !snapshot.candidates().is_empty() {
        return Err(CheckError::Paused(container.id().to_owned()));
    }
    let mut report = CheckReport {
        called: container.id().to_owned(),
        container: container.id().to_owned(),
        root: context.root.clone(),
        checkpointable: true,
        refusal: None,
        kind: None,
        processes: Vec::new(),
        blockers: Vec::new(),
        hooks: DeclaredHooks::default(),
        notes: Vec::new(),
        by_criu_bytes: 0,
    };
    let (settings, flavor) = (&context.settings, context.low_level.flavor);
    let accepted = refuse_running(settings, flavor, &context.root, container);
    let members = accepted
        .map_err(Refusal::from)
        .and_then(|()| Ok(cuda_members(context, container, &snapshot)?));
    let has = Capabilities::probe(settings);
    match members {
        Ok(members) => report.fill(context, container, options, &snapshot, members, &has)?,
        Err(refusal) => report.refuse(&refusal),
    }
    report.ask_for_programs(context, &has);
    if Undo::is_cut_off(&directory_of(state_dir, &context.root, container.id())) {
        let id = container.id();
        report.notes.push(format!(
            "an operation on it was killed, and it stands still; run: stasis recover {id} (the \
             next operation undoes it, too)"
        ));
    }
    // An operation may have begun meanwhile.
    refuse_under_way(state_dir, &context.root, container.id())?;
    Ok(report)
}

fn as_text<S: Serializer>(state: &Option<CudaState>, to: S) -> Result<S::Ok, S::Error> {
    state.map(|state| state.to_string()).serialize(to)
}

fn unreadable(error: std::io::Error) -> Refusal {
    ContainerError::Processes(error).into()
}

impl CheckReport {
    fn fill(
        &mut self,
        context: &Context,
        container: &Container,
        options: &BTreeSet<CriuOption>,
        snapshot: &Snapshot,
        cuda: Option<CudaMembers>,
        has: &Capabilities,
    ) -> Result<(), Refusal> {
        let (members, copying) = match cuda {
            Some(cuda) => (cuda.members, Some(cuda.copying)),
            None => (ProcessStates::new(), None),
        };
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
        let asked = asked(context, container, options);
        let facts = ContainerFacts {
            snapshot,
            members: &members,
            inventory: &inventory,
            sharing: Sharing::Guessed(PeerAccess::of(container)),
            asked: Some(&asked),
        };
        let describe = |member: &Member| Process {
            pid: member.pid,
            pid_inside: member.pid_inside,
            name: member.name.clone(),
            cuda: facts.state_of(member),
            gpus: inventory.uses(member.pid),
            exec: member.origin == Origin::Exec,
        };
        self.processes = snapshot.members().iter().map(describe).collect();
        let mut found = find_blockers(container, &facts)?;
        if let Some(copying) = copying
            && Sharing::of(&copying, container, &members) == Sharing::AtTheLock
        {
            let later = known_later(&mut found).into_iter();
            let told = "a checkpoint finds out at the lock whether this is a blocker";
            self.notes
                .extend(later.map(|finding| format!("{finding}: {told}")));
        }
        for finding in found.into_iter().chain(exec_sessions::findings(snapshot)) {
            self.add(finding, &context.settings);
        }
        if members.is_empty() {
            return Ok(());
        }
        match Hooks::of(&context.settings.hooks, container) {
            Ok(hooks) => self.declare(hooks),
            Err(error) => self.refuse(&error.into()),
        }
        let captured = look(context, container, &facts)?;
        for finding in captured.unknown() {
            self.add(finding, &context.settings);
        }
        if let Err(refusal) = self.ask_for_room(context, container, &members, &captured, has) {
            self.refuse(&refusal);
        }
        Ok(())
    }

    /// Looks for CRIU and the low-level runtime as a checkpoint does.
    fn ask_for_programs(&mut self, context: &Context, has: &Capabilities) {
        if let Err(error) = has.criu.usable() {
            self.refuse(&error.into());
        }
        if let Err(error) = context.place_found() {
            self.refuse_as(Kind::LowLevelRuntime, chain(&error));
        }
    }

    fn add(&mut self, finding: Finding, settings: &Settings) {
        let kind = finding.kind;
        let allowed = settings.allows(kind);
        self.checkpointable &= allowed;
        if !allowed {
            self.kind.get_or_insert(Kind::Blocked);
        }
        self.blockers.push(Blocker {
            finding,
            consequence: consequence(kind),
            way_out: way_out(kind),
            allowed,
        });
    }

    fn refuse(&mut self, refusal: &Refusal) {
        let text = match refusal {
            Refusal::Driver(OpenError::TooOld { .. }) => {
                format!("{}: {}", BlockerKind::DriverVersion, chain(refusal))
            }
            other => chain(other),
        };
        self.refuse_as(refusal.kind(), text);
    }

    pub(crate) fn refuse_as(&mut self, kind: Kind, text: String) {
        self.checkpointable = false;
        self.kind.get_or_insert(kind);
        self.refusal.get_or_insert(text);
    }

    /// Drops the blockers of `exec` sessions, for a checkpoint that leaves the container running: a
    /// session ends with the container, and prevents nothing else.
    pub(crate) fn goes_on(&mut self) {
        let is_exec = |blocker: &Blocker| blocker.finding.kind == BlockerKind::ExecSession;
        self.blockers.retain(|blocker| !is_exec(blocker));
        let is_free = self.blockers.iter().all(|blocker| blocker.allowed);
        if is_free && self.refusal.is_none() {
            (self.checkpointable, self.kind) = (true, None);
        }
    }
}
