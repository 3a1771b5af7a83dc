//! What is looked at before a checkpoint changes anything.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Access, access};
use stasis_config::Containers;

use crate::blocker::{Blockers, Finding};
use crate::blockers::{self, Scene};
use crate::cgroup::FreezerState;
use crate::container::{Container, ContainerError};
use crate::cuda::Driver;
use crate::engine::{CudaMembers, Engine, refuse_frozen_above};
use crate::error::Refusal;
use crate::fault::Fault;
use crate::gpu::Inventory;
use crate::host_memory;
use crate::idle::Idle;
use crate::invocation::{CheckpointOptions, PreDump};
use crate::manifest::{CudaProcess, Manifest};
use crate::members::{Members, look};
use crate::memory_dump;
use crate::memory_plugin::Plugins;
use crate::operation::{Intent, Operation, WaitsFor};
use crate::process::ProcessRef;
use crate::recorded::recorded;
use crate::watchdog::WatchedDriver;

/// A checkpoint that may begin.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The surroundings.
    pub engine: &'a Engine,
    /// What the caller asked for.
    pub options: &'a CheckpointOptions,
    /// The container.
    pub container: Container,
    /// The right to operate on it.
    pub operation: Operation,
    /// The driver of its CUDA processes.
    pub driver: WatchedDriver,
    /// Whether the caller had frozen it.
    pub found: FreezerState,
    /// CRIU's plugin directory.
    pub plugins: Plugins,
    /// Blockers that the administrator allows.
    pub allowed: Vec<Finding>,
}

/// The outcome of the look.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// There is no GPU, or the low-level runtime knows of no running container.
    Plain,
    /// No process uses CUDA, but one may begin, since there is a GPU in the container, or we move the bulk memory of all.
    Idle(Idle<'a>),
    /// The plan, and the manifest as far as it is known beforehand.
    Cuda(Box<Plan<'a>>, Manifest),
}

impl<'a> Plan<'a> {
    /// Looks at the container, its processes, the GPUs and the image directory. A frozen container
    /// with a process that may use CUDA is thawed for that, since the driver answers only for
    /// processes that run; it stays so if the verdict is a plan.
    ///
    /// # Errors
    /// [`Refusal`]; the container is then as it was found.
    pub fn make(
        engine: &'a Engine,
        options: &'a CheckpointOptions,
    ) -> Result<Verdict<'a>, Refusal> {
        let Some(container) = engine.container(&options.id)? else {
            return Ok(Verdict::Plain);
        };
        let state_dir = &engine.settings.paths.state_dir;
        let operation = Operation::begin(state_dir, &engine.root, &options.id)?;
        let cgroup = container.cgroup().clone();
        let found = cgroup.freezer_state()?;
        let thawed = found == FreezerState::Frozen && may_use_cuda(&container)?;
        if thawed && let Err(error) = cgroup.thaw() {
            // Its own setting is another now, whatever a cgroup above does.
            let _ = cgroup.freeze();
            return Err(error.into());
        }
        let verdict = Self::judge(engine, options, container, operation, found);
        if thawed && !matches!(verdict, Ok(Verdict::Cuda(..))) {
            cgroup.freeze()?;
        }
        verdict
    }

    fn judge(
        engine: &'a Engine,
        options: &'a CheckpointOptions,
        container: Container,
        operation: Operation,
        found: FreezerState,
    ) -> Result<Verdict<'a>, Refusal> {
        let Some(CudaMembers { driver, members }) = engine.cuda_members(&container)? else {
            // An image directory that is used again must not keep the last one's GPU state.
            Manifest::remove(&options.image_path)?;
            memory_dump::remove_from(&options.image_path)?;
            let all = engine.settings.bulk_memory.enabled
                && engine.settings.bulk_memory.containers == Containers::All;
            if !(all || may_use_cuda(&container)? || container.has_nvidia_node()) {
                return Ok(Verdict::Plain);
            }
            return Ok(Verdict::Idle(Idle {
                engine,
                options,
                container,
                operation,
                found,
            }));
        };
        refuse_pre_dump(options, &members)?;
        let earlier = operation
            .recorded()?
            .map(|intent| intent.processes)
            .unwrap_or_default();
        let inventory = Inventory::read(engine.settings.driver.nvml.as_deref())?;
        let allowed = refuse_blockers(engine, &container, &members, &inventory)?;
        let processes = members.iter().map(|(process, _)| process);
        let manifest = describe(engine, &container, processes, &inventory, &earlier)?;
        if let Some(bytes) = manifest.gpu_bytes() {
            host_memory::admit(&engine.settings.memory, container.memory(), bytes)?;
        }
        let plugins = Plugins::for_checkpoint(engine, options)?;
        prepare_image_directory(&options.image_path)?;
        let plan = Self {
            engine,
            options,
            container,
            operation,
            driver,
            found,
            plugins,
            allowed,
        };
        Ok(Verdict::Cuda(Box::new(plan), manifest))
    }

    /// Describes the processes that were locked in the end, if they are not those of the first
    /// look: some may have begun with CUDA meanwhile, others may have ended.
    ///
    /// # Errors
    /// As [`Plan::make`].
    pub fn follow(&self, members: &[ProcessRef], manifest: &mut Manifest) -> Result<(), Refusal> {
        let now = members
            .iter()
            .map(|process| self.container.pid_inside(process));
        let known = manifest.processes.iter().map(|process| Some(process.pid));
        if !now.eq(known) {
            let inventory = Inventory::read(self.engine.settings.driver.nvml.as_deref())?;
            let found = look_again(&self.driver, &self.container)?;
            refuse_blockers(self.engine, &self.container, &found, &inventory)?;
            let earlier = std::mem::take(&mut manifest.processes);
            let members = members.iter();
            *manifest = describe(self.engine, &self.container, members, &inventory, &earlier)?;
        }
        Ok(())
    }

    /// The record of this operation.
    #[must_use]
    pub fn intent(&self, manifest: &Manifest, waits_for: WaitsFor) -> Intent {
        Intent {
            processes: manifest.processes.clone(),
            waits_for,
            guardian: None,
        }
    }
}

/// The container's CUDA processes as they are now.
///
/// # Errors
/// A process that cannot be looked at.
pub fn look_again(driver: &dyn Driver, container: &Container) -> Result<Members, Fault> {
    let processes = container.processes();
    let processes = processes.map_err(|error| Fault::of_look(container.init(), error))?;
    refuse_frozen_above(container, &processes)?;
    look(driver, processes)
}

fn may_use_cuda(container: &Container) -> Result<bool, Refusal> {
    for process in container.processes().map_err(ContainerError::Processes)? {
        if process.may_use_cuda().map_err(ContainerError::Processes)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn refuse_pre_dump(options: &CheckpointOptions, members: &Members) -> Result<(), Refusal> {
    match (options.pre_dump, members.first()) {
        (PreDump::Only, Some((process, _))) => Err(Refusal::PreDump {
            pid: process.pid(),
            name: process.name().to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Refuses all blockers but those that the administrator allows, which it gives back.
fn refuse_blockers(
    engine: &Engine,
    container: &Container,
    members: &Members,
    inventory: &Inventory,
) -> Result<Vec<Finding>, Refusal> {
    let processes = container.processes().map_err(ContainerError::Processes)?;
    let scene = Scene {
        processes: &processes,
        members,
        inventory,
    };
    let found = blockers::find(&scene).map_err(ContainerError::Processes)?;
    Ok(Blockers::judge(found, &engine.settings.preflight)?)
}

/// As runc does: makes the directory, but not those above it.
fn prepare_image_directory(path: &Path) -> Result<(), Refusal> {
    let make = || {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        access(path, Access::WRITE_OK | Access::EXEC_OK)?;
        Ok(())
    };
    make().map_err(|source| Refusal::Directory {
        what: "the image directory",
        path: path.to_owned(),
        source,
    })
}

/// The manifest's facts. They have to be asked for before the GPU checkpoint: NVML forgets a
/// process whose GPU state is in host memory, so one found so is described by the earlier record.
fn describe<'p>(
    engine: &Engine,
    container: &Container,
    members: impl Iterator<Item = &'p ProcessRef>,
    inventory: &Inventory,
    earlier: &[CudaProcess],
) -> Result<Manifest, Refusal> {
    let mut manifest = Manifest::new(
        container.id(),
        engine.began_text(),
        inventory.driver_version.clone(),
    );
    for process in members {
        manifest
            .processes
            .push(describe_one(container, process, inventory, earlier)?);
    }
    manifest.gpus.clone_from(&inventory.gpus);
    Ok(manifest)
}

fn describe_one(
    container: &Container,
    process: &ProcessRef,
    inventory: &Inventory,
    earlier: &[CudaProcess],
) -> Result<CudaProcess, Refusal> {
    let pid = container.pid_inside(process).ok_or_else(|| {
        let what = format!("{process} is outside the container's pid namespace");
        ContainerError::Processes(io::Error::other(what))
    })?;
    let mut gpus = recorded(process, inventory).map_err(ContainerError::Processes)?;
    if gpus.is_empty()
        && let Some(recorded) = earlier.iter().find(|known| known.pid == pid)
    {
        gpus.clone_from(&recorded.gpus);
    }
    Ok(CudaProcess {
        pid,
        name: process.name().to_owned(),
        gpus,
    })
}
