//! The restore of a container with GPU state, from top to bottom.
//!
//! Read the manifest, see that the GPUs have room, let the low-level runtime and CRIU bring the
//! processes back, then give them their GPU state. Callers read the pid and report "running" only
//! after we have ended, so the GPU is back before anybody hears of the container.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use crate::admission::{self, Admission};
use crate::aftermath::Aftermath;
use crate::dump::keep_log;
use crate::engine::{Engine, Outcome};
use crate::error::{Error, Failure, LowLevelFailure, Refusal, Verb};
use crate::exit_status;
use crate::forward::Forward;
use crate::gauge::Gauge;
use crate::huge_pages::HugePages;
use crate::invocation::{Invocation, RestoreMode, RestoreOptions};
use crate::low_level;
use crate::manifest::Manifest;
use crate::memory_dump::has_index;
use crate::memory_plugin::Plugins;
use crate::memory_restore::{MemoryRestore, environment};
use crate::operation::Operation;
use crate::operation_log;
use crate::progress::Progress;
use crate::reattach::reattach;
use crate::timeline::Timeline;

/// How often an attached restore looks whether the container is up.
const POLL: Duration = Duration::from_millis(2);

/// Restores a container. An image with neither a manifest nor bulk memory is not ours: the low-level runtime restores
/// it.
///
/// # Errors
/// [`Error`]; nothing of the container is left then, and the image is as it was.
pub fn restore(
    engine: &Engine,
    options: &RestoreOptions,
    invocation: &Invocation,
) -> Result<Outcome, Error> {
    let refused = |reason: Refusal| Error::refused(Verb::Restore, &options.id, reason);
    // A container of this id is there: the low-level runtime refuses. We must not get as far as
    // ending what a failed restore left, since that would be the container that runs.
    if engine.root.join(&options.id).exists() {
        return Ok(Outcome::PassThrough);
    }
    let manifest = match Manifest::read(&options.image_path) {
        Ok(Some(manifest)) => manifest,
        // Nobody else can restore what is not in CRIU's own files.
        Ok(None) if has_index(&options.image_path) => Manifest::implied(&options.id),
        Ok(None) => return Ok(Outcome::PassThrough),
        Err(error) => return Err(refused(error.into())),
    };
    let plan = Plan::make(engine, options, manifest).map_err(refused)?;
    let progress = Progress::begin(engine, &plan.operation, Verb::Restore);
    let mut timeline = Timeline::told_by(progress);
    let result = plan.bring_up(invocation, &mut timeline);
    operation_log::write(
        engine,
        Verb::Restore,
        &options.id,
        &timeline,
        result.as_ref().err(),
    );
    // From here on other operations may have the container, also while we wait for its end.
    drop(timeline);
    drop(plan);
    Ok(Outcome::Done(result?.exit_code()))
}

/// A container that is up, with its GPU.
enum Up {
    Detached,
    /// It ended before it was seen.
    Ended(ExitStatus),
    /// The low-level runtime stays as its parent.
    Attached(Child, Forward),
}

impl Up {
    /// Waits for the end of an attached container.
    fn exit_code(self) -> u8 {
        match self {
            Self::Detached => 0,
            Self::Ended(status) => exit_status::code(status),
            // A child whose end cannot be learned is none that ended well.
            Self::Attached(mut child, _forward) => child.wait().map_or(1, exit_status::code),
        }
    }
}

/// A restore that may begin.
struct Plan<'a> {
    engine: &'a Engine,
    options: &'a RestoreOptions,
    manifest: Manifest,
    admission: Admission,
    /// Has files in the operation's directory, so it goes before it.
    memory: Option<MemoryRestore>,
    operation: Operation,
    plugins: Plugins,
    pid_file: PathBuf,
}

impl<'a> Plan<'a> {
    fn make(
        engine: &'a Engine,
        options: &'a RestoreOptions,
        manifest: Manifest,
    ) -> Result<Self, Refusal> {
        let (id, image) = (&options.id, &options.image_path);
        let plugins = Plugins::for_restore(engine)?;
        let state_dir = &engine.settings.paths.state_dir;
        let operation = Operation::begin(state_dir, &engine.root, id)?;
        let directory = operation.directory();
        let memory = MemoryRestore::find(engine, image, &manifest, &plugins, directory)?;
        let bundle = &options.bundle;
        let admission = admission::admit(engine, id, bundle, image, &manifest, memory.as_ref())?;
        let pid_file = options
            .pid_file
            .clone()
            .unwrap_or_else(|| operation.directory().join("init.pid"));
        Ok(Self {
            engine,
            options,
            manifest,
            admission,
            operation,
            plugins,
            memory,
            pid_file,
        })
    }

    fn bring_up(&self, invocation: &Invocation, timeline: &mut Timeline<'_>) -> Result<Up, Error> {
        for note in &self.admission.notes {
            timeline.note(note.as_str());
        }
        let ordered = self.memory.as_ref().map_or(Ok(()), MemoryRestore::order);
        let prepared = ordered
            .and_then(|()| self.make_room(timeline))
            .and_then(|()| self.change_spec());
        let result = prepared.and_then(|()| match self.options.mode {
            RestoreMode::Detached => self.detached(invocation, timeline),
            RestoreMode::Attached => self.attached(invocation, timeline),
        });
        result.map_err(|cause| {
            // What CRIU brought back without its GPU state must not be left to run.
            low_level::delete(&self.engine.low_level, &self.engine.root, &self.options.id);
            low_level::clear_work(self.work());
            if let Some(changes) = &self.admission.changes {
                // The changes would do no harm; but a failed restore leaves nothing.
                let _ = changes.0.put_back();
            }
            let cause = self.admission.explain(self.engine, &self.manifest, cause);
            Error::failed(Verb::Restore, &self.options.id, cause, Aftermath::Killed)
        })
    }

    fn make_room(&self, timeline: &mut Timeline<'_>) -> Result<(), Failure> {
        let memory = &self.admission.memory;
        for note in memory.make_room(self.engine, self.operation.directory())? {
            timeline.note(note);
        }
        Ok(())
    }

    /// The low-level runtime takes device numbers and mount sources from the bundle.
    fn change_spec(&self) -> Result<(), Failure> {
        match &self.admission.changes {
            Some(changes) => Ok(changes.0.write()?),
            None => Ok(()),
        }
    }

    fn detached(
        &self,
        invocation: &Invocation,
        timeline: &mut Timeline<'_>,
    ) -> Result<Up, Failure> {
        let restored = timeline.time_moving("criu restore", self.gauge(), || {
            let _huge_pages = self.huge_pages();
            let status = self.start(invocation)?.wait();
            self.succeeded(status.map_err(|source| self.not_run(source))?)
        });
        restored?;
        self.check_memory(timeline)?;
        // Nobody has heard of the container yet: whoever wants it gone need not wait for the GPU.
        if self.engine.cancel.requested() {
            return Err(Failure::Cancelled);
        }
        self.reattach(timeline)?;
        Ok(Up::Detached)
    }

    /// Without `--detach` the low-level runtime stays, as the container's parent, and ends with
    /// its exit code. The GPU part is done beside it as soon as the pid file says that the
    /// container is up.
    fn attached(
        &self,
        invocation: &Invocation,
        timeline: &mut Timeline<'_>,
    ) -> Result<Up, Failure> {
        // One that an earlier container left would be taken for this one's.
        let _ = fs::remove_file(&self.pid_file);
        let mut child = self.start(invocation)?;
        let forward = Forward::signals_to(&child);
        let up = timeline.time_moving("criu restore", self.gauge(), || {
            let _huge_pages = self.huge_pages();
            self.wait_until_up(&mut child)
        });
        if let Some(status) = up.map_err(|source| self.not_run(source))? {
            return self.succeeded(status).map(|()| Up::Ended(status));
        }
        self.check_memory(timeline)?;
        self.reattach(timeline)?;
        Ok(Up::Attached(child, forward))
    }

    fn gauge(&self) -> Gauge<'_> {
        Gauge::criu_restore(self.memory.as_ref().map(MemoryRestore::progress))
    }

    fn huge_pages(&self) -> Option<HugePages> {
        self.memory.as_ref()?.huge_pages(self.engine)
    }

    fn check_memory(&self, timeline: &mut Timeline<'_>) -> Result<(), Failure> {
        match &self.memory {
            Some(memory) => Ok(memory.succeeded(timeline)?),
            None => Ok(()),
        }
    }

    fn start(&self, invocation: &Invocation) -> Result<Child, Failure> {
        // Admission takes its time, and a caller that has gone does not want the container.
        if self.engine.cancel.requested() {
            return Err(Failure::Cancelled);
        }
        let low_level = &self.engine.low_level;
        let flavor = low_level.flavor;
        let args: Vec<OsString> = match self.options.pid_file {
            Some(_) => invocation.pass_on(flavor),
            None => {
                let extra: [(&str, &OsStr); 1] = [("--pid-file", self.pid_file.as_os_str())];
                invocation.pass_on_with(flavor, &extra)
            }
        };
        let criu = environment(&self.plugins, self.memory.as_ref());
        low_level::start(low_level, &args, criu, self.options.mode)
            .map_err(|source| self.not_run(source))
    }

    fn reattach(&self, timeline: &mut Timeline<'_>) -> Result<(), Failure> {
        let id = &self.options.id;
        if let Some(gpus) = &self.admission.gpus {
            reattach(self.engine, id, gpus, &self.manifest, timeline)?;
        }
        // The container is up and well: that it may use more memory than it should is no reason to end it.
        let (memory, directory) = (&self.admission.memory, self.operation.directory());
        let changes = self.admission.changes.as_ref();
        let put_back =
            changes.map(|changes| memory.put_back(self.engine, id, &changes.0, directory));
        if let Some(Err(error)) = put_back {
            timeline.note(format!("its memory limit could not be put back: {error}"));
        }
        Ok(())
    }

    /// `None` once the container is up; its exit status if the low-level runtime ended before.
    fn wait_until_up(&self, child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
        loop {
            // The low-level runtime writes the file whole (rename) and after everything else.
            match child.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if self.pid_file.exists() => return Ok(None),
                None => {}
            }
            thread::sleep(POLL);
        }
    }

    fn not_run(&self, source: std::io::Error) -> Failure {
        Failure::Start {
            path: self.engine.low_level.path.clone(),
            source,
        }
    }

    /// CRIU's work directory.
    fn work(&self) -> &Path {
        let options = self.options;
        options.work_path.as_ref().unwrap_or(&options.image_path)
    }

    fn succeeded(&self, status: ExitStatus) -> Result<(), Failure> {
        if status.success() {
            return Ok(());
        }
        // CRIU logs to the image directory unless the caller named another.
        let (options, work) = (self.options, self.work());
        Err(Failure::LowLevel(Box::new(LowLevelFailure {
            program: format!("{} restore", low_level::name(&self.engine.low_level)),
            status,
            // Standard error is the container's at a restore: the caller has it already.
            stderr: String::new(),
            memory: self
                .memory
                .as_ref()
                .map(MemoryRestore::failed)
                .unwrap_or_default(),
            log: keep_log(self.engine, work, "restore.log", &options.id),
            full: None,
        })))
    }
}
