//! The programs that do the work: the low-level runtime (runc or crun) in this file,
//! `stasis-runtime` in `stasis.rs`. `call.rs` is one call of either, `process.rs` its
//! process, `log.rs` reads its error.
//!
//! Order and spelling of the arguments are those of go-runc, because runc, crun and the programs
//! that wrap them are used with those.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use containerd_shim::api::Options;
use serde::Deserialize;
use stasis_config::interface;
use tokio::time::timeout;

use self::call::{RunningCall, RuntimeCall};
use self::programs::LowLevel;
use crate::bundle::{Bundle, Through};
use crate::child::reaper::Reaper;
use crate::child::{environment, spawn_captured};
use crate::error::{Error, Result, RuntimeMessage};
use crate::stdio::Streams;

pub(crate) mod call;
pub(crate) mod log;
pub(crate) mod options;
pub(crate) mod process;
pub(crate) mod programs;
pub(crate) mod stasis;

/// Where runtimes keep their containers unless the options name another directory. Each namespace
/// of containerd has a directory below it.
const DEFAULT_ROOT: &str = "/run/containerd/runc";

/// How long a call may take that only looks, signals or sets limits.
const SHORT: Duration = Duration::from_secs(120);
/// How long a call may take that makes, starts or removes a container: it runs the user's hooks.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// How long a runtime may take to say what it can do: containerd waits, also at its start.
const FEATURES: Duration = Duration::from_secs(5);

/// Which processes a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The init process.
    Init,
    /// All processes of the container.
    All,
}

/// The runtimes of one task.
#[derive(Debug)]
pub(crate) struct OciRuntime {
    low_level: LowLevel,
    stasis: PathBuf,
    root: PathBuf,
    log: PathBuf,
    /// Those of the task's Create request.
    pub(crate) options: Options,
    reaper: Arc<Reaper>,
}

impl OciRuntime {
    /// Finds the programs for a task.
    pub(crate) fn find(
        options: Options,
        bundle: &Bundle,
        namespace: &str,
        reaper: &Arc<Reaper>,
    ) -> Result<Self> {
        let root = match options.root.as_str() {
            "" => DEFAULT_ROOT,
            root => root,
        };
        Ok(Self {
            low_level: programs::find_low_level(&options)?,
            stasis: programs::find_stasis_runtime(),
            root: Path::new(root).join(namespace),
            log: bundle.log(),
            options,
            reaper: Arc::clone(reaper),
        })
    }

    /// Turns the error of a deletion into success if the runtime has no such container. A
    /// checkpoint that ends the container removes it, and a task that was never restored has none.
    pub(crate) fn ignore_if_gone(&self, id: &str, deleted: Result<()>) -> Result<()> {
        match deleted {
            Err(error) if self.root.join(id).exists() => Err(error),
            _ => Ok(()),
        }
    }

    /// The low-level runtime's program.
    pub(crate) fn program(&self) -> &Path {
        self.low_level.program()
    }

    /// Starts a call that creates a container.
    pub(crate) fn start_create(
        &self,
        id: &str,
        bundle: &Bundle,
        through: Through,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<RunningCall> {
        let call = self.by(through, "create");
        let call = call.option("--bundle", bundle.path());
        self.init_options(call, console, &bundle.init_pid_file())
            .switch("--no-new-keyring", self.options.no_new_keyring)
            .arg(id)
            .start_with(streams)
    }

    /// The bundle of the container that the low-level runtime knows by this id, if it knows one.
    pub(crate) async fn bundle_of(&self, id: &str) -> Option<PathBuf> {
        #[derive(Deserialize)]
        struct Known {
            bundle: PathBuf,
        }
        let known = self.low_level("state").arg(id).within(SHORT).output();
        let known: Known = serde_json::from_slice(&known.await.ok()?).ok()?;
        Some(known.bundle)
    }

    /// Starts the user's program in a container, or lets it go on if it was created from an image.
    pub(crate) async fn start(&self, id: &str, through: Through) -> Result<()> {
        let call = self.by(through, "start");
        call.arg(id).within(LONG).run().await
    }

    /// Starts a call that starts another process in a container.
    pub(crate) fn start_exec(
        &self,
        id: &str,
        process: &Path,
        pid_file: &Path,
        streams: Streams,
        console: Option<&Path>,
    ) -> Result<RunningCall> {
        self.low_level("exec")
            .option("--process", process)
            .arg("--detach")
            .option("--pid-file", pid_file)
            .option_if("--console-socket", console)
            .arg(id)
            .start_with(streams)
    }

    /// Sends a signal.
    pub(crate) async fn kill(
        &self,
        id: &str,
        through: Through,
        signal: u32,
        target: Target,
    ) -> Result<()> {
        self.by(through, "kill")
            .switch("--all", target == Target::All)
            .arg(id)
            .arg(signal.to_string())
            .within(SHORT)
            .run()
            .await
    }

    /// Removes a container whose init process has ended or never ran. Not with `--force`: runc then
    /// sleeps 100 ms before it looks for processes that are left.
    pub(crate) async fn delete(&self, id: &str, through: Through) -> Result<()> {
        let call = self.by(through, "delete");
        call.arg(id).within(LONG).run().await
    }

    /// Thaws a container whose init process has ended.
    pub(crate) async fn thaw(&self, id: &str) -> Result<()> {
        self.low_level("resume").arg(id).within(SHORT).run().await
    }

    /// Changes limits; `resources` is a file with them.
    pub(crate) async fn update(&self, id: &str, resources: &Path) -> Result<()> {
        self.low_level("update")
            .option("--resources", resources)
            .arg(id)
            .within(SHORT)
            .run()
            .await
    }

    /// The pids of a container's processes.
    pub(crate) async fn pids(&self, id: &str) -> Result<Vec<u32>> {
        let output = self
            .low_level("ps")
            .option("--format", "json")
            .arg(id)
            .within(SHORT)
            .output()
            .await?;
        // runc prints "null" for an empty list.
        let pids: Option<Vec<u32>> =
            serde_json::from_slice(&output).map_err(|error| Error::Runtime {
                verb: "ps",
                message: RuntimeMessage::new(format!("its output is no list of pids: {error}")),
            })?;
        Ok(pids.unwrap_or_default())
    }

    /// Adds the options of a call that makes an init process.
    pub(crate) fn init_options<'r>(
        &self,
        call: RuntimeCall<'r>,
        console: Option<&Path>,
        pid_file: &Path,
    ) -> RuntimeCall<'r> {
        call.option("--pid-file", pid_file)
            .option_if("--console-socket", console)
            .switch("--no-pivot", self.options.no_pivot_root)
    }

    fn by(&self, through: Through, verb: &'static str) -> RuntimeCall<'_> {
        match through {
            Through::Stasis => self.stasis(verb),
            Through::LowLevel => self.low_level(verb),
        }
    }

    fn low_level(&self, verb: &'static str) -> RuntimeCall<'_> {
        self.call(verb, Command::new(self.low_level.program()))
    }

    /// A call of `stasis-runtime`, which may be of another version: this shim lives as long as its
    /// containers. `--stasis-low-level` names the low-level runtime that the caller chose. A caller
    /// that chose `stasis-runtime` itself gets the one in the settings.
    pub(crate) fn stasis(&self, verb: &'static str) -> RuntimeCall<'_> {
        let mut command = Command::new(&self.stasis);
        command.arg(interface::argument());
        if let LowLevel::Named(program) = &self.low_level
            && !programs::is_stasis_runtime(program)
        {
            command.arg("--stasis-low-level").arg(program);
        }
        self.call(verb, command)
    }

    fn call(&self, verb: &'static str, mut command: Command) -> RuntimeCall<'_> {
        environment::make(&mut command);
        command.arg("--root").arg(&self.root);
        command.arg("--log").arg(&self.log);
        command.args(["--log-format", "json"]);
        if self.options.systemd_cgroup {
            command.arg("--systemd-cgroup");
        }
        RuntimeCall::new(verb, command, &self.log, &self.reaper)
    }
}

/// The output of `<low-level runtime> features`, if the runtime has this command.
pub(crate) async fn features(options: &Options, reaper: &Arc<Reaper>) -> Option<Vec<u8>> {
    let mut command = Command::new(programs::find_low_level(options).ok()?.program());
    environment::make(&mut command);
    command.arg("features").stdin(Stdio::null());
    let child = spawn_captured(reaper, command).ok()?;
    // One that hangs ends with this process (`spawn`).
    let ended = timeout(FEATURES, child.wait()).await.ok()?;
    (ended.exit.status == 0).then_some(ended.stdout)
}
