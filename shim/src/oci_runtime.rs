//! The programs that do the work: the low-level runtime, and `stasis-runtime` for what concerns
//! GPU state.
//!
//! The order and spelling of arguments is go-runc's, which is what runc, crun and their wrappers are
//! used with in the field.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use containerd_shim::api::Options;
use containerd_shim::protos::shim::oci::CheckpointOptions;
use stasis_config::{Settings, SettingsError};

use crate::bundle::Bundle;
use crate::command::{Finished, Running, start, start_captured};
use crate::operation::Target;
use crate::reaper::Reaper;
use crate::runtime_log::{self, Complaint, Mark};
use crate::stdio::Streams;

/// Where runtimes keep their containers unless the options name another directory; below it is one
/// for each namespace of containerd.
const DEFAULT_ROOT: &str = "/run/containerd/runc";
/// The engine's program; beside ours, or on the PATH.
pub(crate) const ENGINE: &str = "stasis-runtime";

/// Why a runtime did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    /// The settings do not name one that is there.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Its program cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It failed. The words are those of containerd's shim, which callers show to users.
    #[error("OCI runtime {verb} failed: {complaint}")]
    Failed {
        /// What it was asked for.
        verb: &'static str,
        /// What it said.
        complaint: Complaint,
    },
}

/// The runtimes of one task.
#[derive(Debug)]
pub(crate) struct OciRuntime {
    low_level: PathBuf,
    engine: PathBuf,
    root: PathBuf,
    log: PathBuf,
    options: Options,
    reaper: Arc<Reaper>,
}

impl OciRuntime {
    /// Finds the programs for a task.
    pub(crate) fn find(
        options: Options,
        bundle: &Bundle,
        namespace: &str,
        reaper: &Arc<Reaper>,
    ) -> Result<Self, RuntimeError> {
        let low_level = if options.binary_name.is_empty() {
            Settings::load(None)?.runtime.resolve()?.path
        } else {
            PathBuf::from(&options.binary_name)
        };
        let root = if options.root.is_empty() {
            DEFAULT_ROOT
        } else {
            &options.root
        };
        Ok(Self {
            low_level,
            engine: engine(),
            root: Path::new(root).join(namespace),
            log: bundle.log(),
            options,
            reaper: Arc::clone(reaper),
        })
    }

    /// Where it keeps the state of a container.
    pub(crate) fn state_of(&self, id: &str) -> PathBuf {
        self.root.join(id)
    }

    /// Creates a container.
    pub(crate) async fn create(
        &self,
        id: &str,
        bundle: &Bundle,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<(), RuntimeError> {
        let mut command = self.low_level("create");
        command.arg("--bundle").arg(bundle.path());
        self.placing(&mut command, console, &bundle.init_pid_file());
        if self.options.no_new_keyring {
            command.arg("--no-new-keyring");
        }
        command.arg(id);
        self.with_streams("create", command, streams).await
    }

    /// Starts the user's program in a container.
    pub(crate) async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        self.short("start", self.low_level("start").arg(id)).await
    }

    /// Starts another process in a container.
    pub(crate) async fn exec(
        &self,
        id: &str,
        process: &Path,
        pid_file: &Path,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<(), RuntimeError> {
        let mut command = self.low_level("exec");
        command.arg("--process").arg(process).arg("--detach");
        command.arg("--pid-file").arg(pid_file);
        if let Some(console) = console {
            command.arg("--console-socket").arg(console);
        }
        command.arg(id);
        self.with_streams("exec", command, streams).await
    }

    /// Sends a signal.
    pub(crate) async fn kill(
        &self,
        id: &str,
        signal: u32,
        target: Target,
    ) -> Result<(), RuntimeError> {
        let mut command = self.low_level("kill");
        if target == Target::All {
            command.arg("--all");
        }
        command.arg(id).arg(signal.to_string());
        self.short("kill", &mut command).await
    }

    /// Removes a container whose init process has ended or never began. Not by force: runc then
    /// waits a tenth of a second before it looks whether anything is left.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), RuntimeError> {
        self.short("delete", self.low_level("delete").arg(id)).await
    }

    /// The same, with what the engine knows of the container.
    pub(crate) async fn delete_operated(&self, id: &str) -> Result<(), RuntimeError> {
        self.short("delete", self.engine("delete").arg(id)).await
    }

    /// Removes a container with everything that runs in it, and ends an operation on it.
    pub(crate) async fn delete_by_force(&self, id: &str) -> Result<(), RuntimeError> {
        let mut command = self.engine("delete");
        self.short("delete", command.arg("--force").arg(id)).await
    }

    /// Freezes a container.
    pub(crate) async fn pause(&self, id: &str) -> Result<(), RuntimeError> {
        self.short("pause", self.engine("pause").arg(id)).await
    }

    /// Thaws a container, and gives GPU state back that a checkpoint left in host memory.
    pub(crate) async fn resume(&self, id: &str) -> Result<(), RuntimeError> {
        self.short("resume", self.engine("resume").arg(id)).await
    }

    /// Changes limits; `resources` is a file.
    pub(crate) async fn update(&self, id: &str, resources: &Path) -> Result<(), RuntimeError> {
        let mut command = self.low_level("update");
        command.arg("--resources").arg(resources).arg(id);
        self.short("update", &mut command).await
    }

    /// The pids of a container's processes.
    pub(crate) async fn pids(&self, id: &str) -> Result<Vec<u32>, RuntimeError> {
        let mut command = self.low_level("ps");
        command.args(["--format", "json"]).arg(id);
        let output = self.captured("ps", &mut command).await?;
        // runc says "null" for none.
        let pids: Option<Vec<u32>> =
            serde_json::from_slice(&output).map_err(|error| RuntimeError::Failed {
                verb: "ps",
                complaint: Complaint::new(format!("its answer is no list of pids: {error}")),
            })?;
        Ok(pids.unwrap_or_default())
    }

    /// Begins a checkpoint.
    pub(crate) fn begin_checkpoint(
        &self,
        id: &str,
        image: &Path,
        work: &Path,
        options: &CheckpointOptions,
    ) -> Result<Begun, RuntimeError> {
        let mut command = self.engine("checkpoint");
        command.arg("--image-path").arg(image);
        command.arg("--work-path").arg(work);
        let switches = [
            (options.open_tcp, "--tcp-established"),
            (options.external_unix_sockets, "--ext-unix-sk"),
            (options.terminal, "--shell-job"),
            (options.file_locks, "--file-locks"),
        ];
        let set = switches.iter().filter(|(set, _)| *set);
        command.args(set.map(|(_, switch)| switch));
        if !options.cgroups_mode.is_empty() {
            command
                .arg("--manage-cgroups-mode")
                .arg(&options.cgroups_mode);
        }
        for namespace in &options.empty_namespaces {
            command.arg("--empty-ns").arg(namespace);
        }
        if !options.exit {
            command.arg("--leave-running");
        }
        command.arg(id);
        self.begin("checkpoint", command, start_captured)
    }

    /// Begins a restore.
    pub(crate) fn begin_restore(
        &self,
        id: &str,
        bundle: &Bundle,
        image: &Path,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<Begun, RuntimeError> {
        let work = match self.options.criu_work_path.as_str() {
            "" => bundle.work(),
            path => PathBuf::from(path),
        };
        let mut command = self.engine("restore");
        command.arg("--image-path").arg(image);
        command.arg("--work-path").arg(work).arg("--detach");
        self.placing(&mut command, console, &bundle.init_pid_file());
        command.arg("--no-subreaper");
        command.arg("--bundle").arg(bundle.path()).arg(id);
        streams.give_to(&mut command);
        self.begin("restore", command, start)
    }

    fn placing(&self, command: &mut Command, console: Option<&Path>, pid_file: &Path) {
        command.arg("--pid-file").arg(pid_file);
        if let Some(console) = console {
            command.arg("--console-socket").arg(console);
        }
        if self.options.no_pivot_root {
            command.arg("--no-pivot");
        }
    }

    fn low_level(&self, verb: &str) -> Command {
        self.command(&self.low_level, &[], verb)
    }

    fn engine(&self, verb: &str) -> Command {
        let low_level = self.low_level.as_os_str();
        let chosen = [OsStr::new("--stasis-low-level"), low_level];
        // Who names the engine itself as the runtime gets what its settings say.
        let chosen: &[&OsStr] = match self.options.binary_name.as_str() {
            "" => &[],
            _ if is_engine(&self.low_level) => &[],
            _ => &chosen,
        };
        self.command(&self.engine, chosen, verb)
    }

    fn command(&self, program: &Path, own: &[&OsStr], verb: &str) -> Command {
        let mut command = Command::new(program);
        // Not the runtime's business, and systemd's notification socket must not reach a container
        // (go-runc strips it too).
        command.env_remove("NOTIFY_SOCKET");
        command.args(own);
        command.arg("--root").arg(&self.root);
        command.arg("--log").arg(&self.log);
        command.args(["--log-format", "json"]);
        if self.options.systemd_cgroup {
            command.arg("--systemd-cgroup");
        }
        command.arg(verb);
        command
    }

    async fn short(&self, verb: &'static str, command: &mut Command) -> Result<(), RuntimeError> {
        self.captured(verb, command).await.map(drop)
    }

    async fn captured(
        &self,
        verb: &'static str,
        command: &mut Command,
    ) -> Result<Vec<u8>, RuntimeError> {
        let command = std::mem::replace(command, Command::new(""));
        self.begin(verb, command, start_captured)?.finish().await
    }

    async fn with_streams(
        &self,
        verb: &'static str,
        mut command: Command,
        streams: Streams,
    ) -> Result<(), RuntimeError> {
        streams.give_to(&mut command);
        let begun = self.begin(verb, command, start)?;
        begun.finish().await.map(drop)
    }

    fn begin(
        &self,
        verb: &'static str,
        command: Command,
        start: Start,
    ) -> Result<Begun, RuntimeError> {
        let program = PathBuf::from(command.get_program());
        let mark = Mark::at_end_of(&self.log);
        let running = start(&self.reaper, command)
            .map_err(|source| RuntimeError::Start { program, source })?;
        Ok(Begun {
            verb,
            running,
            mark,
        })
    }
}

/// How a runtime is started: with the streams that its command has, or with its output kept.
type Start = fn(&Arc<Reaper>, Command) -> io::Result<Running>;

/// A runtime that works on something.
#[derive(Debug)]
pub(crate) struct Begun {
    verb: &'static str,
    running: Running,
    mark: Mark,
}

impl Begun {
    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid
    }

    /// Waits for its end; gives its output.
    pub(crate) async fn finish(self) -> Result<Vec<u8>, RuntimeError> {
        let finished = self.running.finish().await;
        if finished.exit.status == 0 {
            return Ok(finished.output);
        }
        Err(RuntimeError::Failed {
            verb: self.verb,
            complaint: complaint(&self.mark, &finished),
        })
    }
}

fn complaint(mark: &Mark, finished: &Finished) -> Complaint {
    runtime_log::last_error(mark)
        .or_else(|| crate::command::first_line(&finished.errors).map(Complaint::new))
        .unwrap_or_else(|| {
            let status = finished.exit.status;
            Complaint::new(format!("exit status {status}, without a word"))
        })
}

/// The engine's program: the one that was installed with this shim.
fn engine() -> PathBuf {
    let beside = std::env::current_exe().map(|own| own.with_file_name(ENGINE));
    beside
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from(ENGINE))
}

fn is_engine(program: &Path) -> bool {
    program.file_name() == Some(OsStr::new(ENGINE))
}

/// What `<low-level runtime> features` says, if it knows the command.
pub(crate) async fn features(options: &Options, reaper: &Arc<Reaper>) -> Option<Vec<u8>> {
    let program = match options.binary_name.as_str() {
        "" => Settings::load(None).ok()?.runtime.resolve().ok()?.path,
        name => PathBuf::from(name),
    };
    let mut command = Command::new(program);
    command.arg("features").stdin(Stdio::null());
    let finished = start_captured(reaper, command).ok()?.finish().await;
    (finished.exit.status == 0).then_some(finished.output)
}
