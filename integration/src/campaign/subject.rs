//! A container that has to survive all operations and faults, and the expected state of it.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, Result, ensure};

use crate::campaign::fault::Fault;
use crate::campaign::images::{Images, image_name};
use crate::campaign::lives::Lives;
use crate::campaign::verb::{Place, Verb};
use crate::campaign::workload::{Reading, Workload};
use crate::container::bundle::Bundle;
use crate::faults::Gate;
use crate::host::installed::{CUDA_CHECKPOINT, PROGRAM, RUNTIME, StasisHost};

/// The gates of programs that all containers of a host share.
#[derive(Debug)]
pub struct SharedGates<'l> {
    pub(super) runc: Gate<'l>,
    pub(super) criu: Gate<'l>,
}

/// A container.
#[derive(Debug)]
pub struct Subject<'l> {
    pub(super) stasis: &'l StasisHost,
    pub(super) shared: &'l SharedGates<'l>,
    pub(super) bundle: Bundle<'l>,
    pub(super) workload: Workload,
    pub(super) port: u16,
    pub(super) runtime: Gate<'l>,
    pub(super) toggle: Gate<'l>,
    pub(super) recover: Gate<'l>,
    /// Where it is.
    pub place: Place,
    /// Whether it waits for room, and its keeper may have been killed.
    pub(super) lacks_keeper: bool,
    /// Its last reading.
    pub(super) last: Reading,
    pub(super) images: Images,
    /// Its lives, if it is saved at its stops.
    pub(super) lives: Option<Lives>,
}

/// Where runc's gate is.
const GATED_RUNC: &str = "/usr/local/bin/gated-runc";

impl<'l> SharedGates<'l> {
    /// Has the host use runc and CRIU through gates, with these settings.
    pub fn build(stasis: &'l StasisHost, settings: &str) -> Result<Self> {
        // runc finds it first there.
        let criu = Gate::build(
            stasis,
            "criu",
            "/usr/local/sbin/criu",
            "/usr/sbin/criu",
            "*' swrk '*",
        )?;
        let runc = Gate::build(
            stasis,
            "runc",
            GATED_RUNC,
            "/usr/sbin/runc",
            "*' checkpoint '*|*' restore '*",
        )?;
        // Processes that share memory may have one GPU here; they do not wait for each other there.
        let gpu = "preflight.allow = [\"shared-gpu\"]";
        stasis.set(
            GATED_RUNC,
            &format!("runtime.flavor = \"runc\"\n{gpu}\n{settings}"),
        )?;
        Ok(Self { runc, criu })
    }
}

impl<'l> Subject<'l> {
    /// Starts a container.
    pub fn start(
        stasis: &'l StasisHost,
        shared: &'l SharedGates<'l>,
        id: &str,
        workload: Workload,
        port: u16,
    ) -> Result<Self> {
        let gated = |program: &str| format!("/usr/local/bin/{id}-{program}");
        let command = workload.command(port);
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let bundle = Bundle::make(stasis, id, &words)?.through(&gated("runtime"));
        let gate = |program: &str, to: &str| {
            Gate::build(stasis, &format!("{id}-{program}"), &gated(program), to, "*")
        };
        let runtime = gate("runtime", RUNTIME)?;
        let toggle = gate("toggle", CUDA_CHECKPOINT)?;
        let recover = gate("recover", PROGRAM)?;
        bundle.run()?;
        let last = workload.read(&stasis.ask_until_up(port)?)?;
        Ok(Self {
            stasis,
            shared,
            bundle,
            workload,
            port,
            runtime,
            toggle,
            recover,
            place: Place::Runs,
            lacks_keeper: false,
            last,
            images: Images::Apart(0),
            lives: None,
        })
    }

    /// Has its checkpoints write their images there.
    #[must_use]
    pub fn writing(self, images: Images) -> Self {
        Self { images, ..self }
    }

    /// The container's id.
    pub fn id(&self) -> &str {
        &self.bundle.id
    }

    /// The host that it is in.
    pub fn host(&self) -> &StasisHost {
        self.stasis
    }

    /// The tags of its CUDA processes.
    pub fn tags(&self) -> Vec<String> {
        self.workload.tags(self.id())
    }

    /// Returns how many MiB of the GPU the contexts of its processes take at least (`CONTEXT_BYTES`
    /// of the stand-in, and 1 MiB).
    pub(super) fn gpu_mib(&self) -> u32 {
        self.tags().iter().map(|_| 65).sum()
    }

    /// Tries without a fault to have it run; returns where it is then. It may lack room on the GPU.
    pub(super) fn comes_back(&mut self) -> Result<Place> {
        if self.lacks_keeper {
            // As an operator does: it fails as long as there is no room.
            let recover = [PROGRAM, "recover", self.id()];
            self.stasis
                .command(recover[0])
                .args(&recover[1..])
                .output()?;
        }
        self.looks_again()?;
        let verb = match &self.place {
            Place::Runs | Place::Waits => return Ok(self.place.clone()),
            Place::Paused => Verb::Resume,
            Place::Suspended => Verb::Wake,
            Place::Ended(_) => Verb::Restore,
            Place::Stopped => {
                self.succeeds(Verb::Create)?;
                Verb::Start
            }
            Place::Created => Verb::Start,
        };
        let outcome = self.does(verb, Fault::None)?;
        ensure!(
            outcome.end.needs_no_fault(),
            "{verb} without a fault: {outcome:?}"
        );
        Ok(self.place.clone())
    }

    /// Brings it from where it is to where it runs, without a fault.
    pub fn runs_again(&mut self) -> Result<()> {
        let place = self.comes_back()?;
        ensure!(place == Place::Runs, "it is {place:?}");
        Ok(())
    }

    /// Carries out a checkpoint and a restore, without a fault: the next operations work.
    pub fn goes_through_both(&mut self) -> Result<()> {
        self.succeeds(Verb::Checkpoint)?;
        self.succeeds(Verb::Restore)
    }

    /// Removes a lost one, and starts another in its place, unless it is saved at its stops.
    pub fn start_again(&mut self) -> Result<()> {
        self.bundle.delete()?;
        if self.lives.is_some() {
            self.place = Place::Stopped;
            return Ok(());
        }
        // Other containers may have its room, and a new container cannot wait.
        let memory = self.stasis.gpu_memory()?;
        self.stasis.set_gpu_memory(None)?;
        self.bundle.run()?;
        self.place = Place::Runs;
        let answer = self.stasis.ask_until_up(self.port)?;
        self.last = self.workload.read(&answer)?;
        self.stasis.set_gpu_memory(memory)
    }

    /// Starts another in its place, whatever state it is in.
    pub fn start_over(&mut self) -> Result<()> {
        // So that the remains of a fault do not hide the next one.
        let _ = self.bundle.delete();
        let record = self.bundle.record();
        let _ = fs::remove_dir_all(record);
        self.stasis
            .run(&["bash", "-c", "rm -rf /images/*-image*"])?;
        self.start_again()
    }

    /// Removes images but the one that it has ended in.
    pub fn forget_images(&self) -> Result<()> {
        match self.images {
            Images::Apart(count) => self.remove_images(count),
            // The next one is written beside it.
            Images::Together => Ok(()),
        }
    }

    fn remove_images(&self, count: u32) -> Result<()> {
        for number in 0..count {
            let name = image_name(number);
            if self.place == Place::Ended(name.clone()) {
                continue;
            }
            // Most are gone already: a program in the host for each would take longer than a fault.
            match fs::remove_dir_all(self.bundle.image_path(&name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends and removes it.
    pub fn end(mut self) -> Result<()> {
        self.bundle.delete()?;
        self.nothing_is_recorded()?;
        self.forget_lives()?;
        self.place = Place::Runs;
        self.remove_images(match self.images {
            Images::Apart(count) => count,
            Images::Together => 1,
        })?;
        let directory = self.bundle.directory();
        let root_fs = format!("{directory}/rootfs");
        self.stasis.run(&["umount", &root_fs])?;
        self.stasis.run(&["rm", "-r", &directory])?;
        Ok(())
    }

    /// Checks that every process of it answers, and has counted on from where it was.
    pub(super) fn counts_on(&mut self) -> Result<()> {
        let answer = self.stasis.ask(self.port)?;
        let now = self.workload.read(&answer.context("no answer")?)?;
        let before = &self.last;
        let follows = self.workload.follows(&now, before);
        ensure!(follows, "{now:?} after {before:?}");
        self.last = now;
        Ok(())
    }
}
