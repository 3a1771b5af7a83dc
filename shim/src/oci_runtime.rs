//! The programs that do the work: the low-level runtime here, `stasis-runtime` in `engine.rs`.
//!
//! The order and spelling of arguments is go-runc's, which is what runc, crun and their wrappers are
//! used with in the field.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use containerd_shim::api::Options;
use stasis_config::{Settings, SettingsError};

use crate::bundle::Bundle;
use crate::call::Call;
use crate::command::start_captured;
use crate::engine;
use crate::operation::Target;
use crate::reaper::Reaper;
use crate::runtime_log::Complaint;
use crate::stdio::Streams;

/// Where runtimes keep their containers unless the options name another directory; below it is one
/// for each namespace of containerd.
const DEFAULT_ROOT: &str = "/run/containerd/runc";

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
        let root = match options.root.as_str() {
            "" => DEFAULT_ROOT,
            root => root,
        };
        Ok(Self {
            low_level: low_level_for(&options)?,
            engine: engine::find(),
            root: Path::new(root).join(namespace),
            log: bundle.log(),
            options,
            reaper: Arc::clone(reaper),
        })
    }

    /// What became of a deletion. One that failed because there is no such container has nothing
    /// left to do: a checkpoint that ends the container removes it by itself, and a task that was
    /// never restored has none.
    pub(crate) fn unless_gone(
        &self,
        id: &str,
        deleted: Result<(), RuntimeError>,
    ) -> Result<(), RuntimeError> {
        match deleted {
            Err(error) if self.root.join(id).exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// The options that it was found with.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Creates a container.
    pub(crate) async fn create(
        &self,
        id: &str,
        bundle: &Bundle,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<(), RuntimeError> {
        let call = self.low_level("create").option("--bundle", bundle.path());
        self.placed(call, console, &bundle.init_pid_file())
            .switch("--no-new-keyring", self.options.no_new_keyring)
            .arg(id)
            .run_with(streams)
            .await
    }

    /// Starts the user's program in a container.
    pub(crate) async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        self.low_level("start").arg(id).run().await
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
        self.low_level("exec")
            .option("--process", process)
            .arg("--detach")
            .option("--pid-file", pid_file)
            .option_if("--console-socket", console)
            .arg(id)
            .run_with(streams)
            .await
    }

    /// Sends a signal.
    pub(crate) async fn kill(
        &self,
        id: &str,
        signal: u32,
        target: Target,
    ) -> Result<(), RuntimeError> {
        self.low_level("kill")
            .switch("--all", target == Target::All)
            .arg(id)
            .arg(signal.to_string())
            .run()
            .await
    }

    /// Removes a container whose init process has ended or never began. Not by force: runc then
    /// waits a tenth of a second before it looks whether anything is left.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), RuntimeError> {
        self.low_level("delete").arg(id).run().await
    }

    /// Changes limits; `resources` is a file.
    pub(crate) async fn update(&self, id: &str, resources: &Path) -> Result<(), RuntimeError> {
        self.low_level("update")
            .option("--resources", resources)
            .arg(id)
            .run()
            .await
    }

    /// The pids of a container's processes.
    pub(crate) async fn pids(&self, id: &str) -> Result<Vec<u32>, RuntimeError> {
        let output = self
            .low_level("ps")
            .option("--format", "json")
            .arg(id)
            .output()
            .await?;
        // runc says "null" for none.
        let pids: Option<Vec<u32>> =
            serde_json::from_slice(&output).map_err(|error| RuntimeError::Failed {
                verb: "ps",
                complaint: Complaint::new(format!("its answer is no list of pids: {error}")),
            })?;
        Ok(pids.unwrap_or_default())
    }

    /// A call that makes an init process: where its pid and its terminal go.
    pub(crate) fn placed<'r>(
        &self,
        call: Call<'r>,
        console: Option<&Path>,
        pid_file: &Path,
    ) -> Call<'r> {
        call.option("--pid-file", pid_file)
            .option_if("--console-socket", console)
            .switch("--no-pivot", self.options.no_pivot_root)
    }

    fn low_level(&self, verb: &'static str) -> Call<'_> {
        self.call(verb, Command::new(&self.low_level))
    }

    /// A call of the engine, which is told of a low-level runtime that the caller chose. Who names
    /// the engine itself gets the one in its settings.
    pub(crate) fn call_engine(&self, verb: &'static str) -> Call<'_> {
        let mut command = Command::new(&self.engine);
        if !self.options.binary_name.is_empty() && !engine::is_engine(&self.low_level) {
            command.arg("--stasis-low-level").arg(&self.low_level);
        }
        self.call(verb, command)
    }

    fn call(&self, verb: &'static str, mut command: Command) -> Call<'_> {
        // Not the runtime's business, and systemd's notification socket must not reach a container
        // (go-runc strips it too).
        command.env_remove("NOTIFY_SOCKET");
        command.arg("--root").arg(&self.root);
        command.arg("--log").arg(&self.log);
        command.args(["--log-format", "json"]);
        if self.options.systemd_cgroup {
            command.arg("--systemd-cgroup");
        }
        Call::new(verb, command, &self.log, &self.reaper)
    }
}

/// The low-level runtime that the caller chose, else the one in the settings.
fn low_level_for(options: &Options) -> Result<PathBuf, SettingsError> {
    match options.binary_name.as_str() {
        "" => Ok(Settings::load(None)?.runtime.resolve()?.path),
        name => Ok(PathBuf::from(name)),
    }
}

/// What `<low-level runtime> features` says, if it knows the command.
pub(crate) async fn features(options: &Options, reaper: &Arc<Reaper>) -> Option<Vec<u8>> {
    let mut command = Command::new(low_level_for(options).ok()?);
    command.arg("features").stdin(Stdio::null());
    let finished = start_captured(reaper, command).ok()?.finish().await;
    (finished.exit.status == 0).then_some(finished.output)
}
