//! Parses the parts of runc's and crun's command lines that stasis needs.
//!
//! Callers mix long options with one and two dashes, `--opt value` and `--opt=value`, and repeat
//! options (podman gives `--leave-running` twice; go-runc writes `-no-subreaper`). The parser reads
//! the options that it needs and passes the others on unchanged. A command line that it does not
//! understand goes to the low-level runtime.

mod create;
mod grammar;
mod kill;
pub mod log;
pub mod pass_on;
pub mod runtime_error;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stasis_config::interface;
use stasis_engine::request::{
    AfterDump, CheckpointRequest, CriuOption, DeleteMode, MemoryTarget, PreDump, RestoreMode,
    RestoreRequest,
};
use stasis_lifecycle::request::{CreateRequest, CreateVerb, KillRequest};

use grammar::{Scan, scan};
use runtime_error::RuntimeError;

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Options before the subcommand.
    pub global: GlobalOptions,
    /// The requested operation.
    pub action: Action,
    /// The arguments without our own options.
    args: Vec<OsString>,
    /// The index of the subcommand in `args`.
    subcommand: Option<usize>,
}

/// The options before the subcommand that we need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GlobalOptions {
    /// `--root`
    pub root: Option<PathBuf>,
    /// `--log`
    pub log: Option<PathBuf>,
    pub(crate) log_format: LogFormat,
    /// `--stasis-config`, our own.
    pub settings: Option<PathBuf>,
    /// `--stasis-low-level`, our own: in place of the settings' low-level runtime.
    pub low_level: Option<PathBuf>,
    /// `--stasis-group`, our own: the file of the containers that have one outcome.
    pub group: Option<PathBuf>,
    /// `--stasis-interface`, our own: the version that the caller speaks, if it is a shim.
    pub interface: Option<OsString>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// `time="…" level=error msg="…"`
    #[default]
    Text,
    /// One JSON object in each line.
    Json,
}

/// The requested operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `checkpoint`
    Checkpoint(CheckpointRequest),
    /// `restore`
    Restore(RestoreRequest),
    /// `resume`
    Resume {
        /// The container.
        id: String,
    },
    /// `delete`
    Delete {
        /// The container.
        id: String,
        /// Whether a running container is ended.
        mode: DeleteMode,
    },
    /// `create` or `run`, which the low-level runtime carries out unless the container begins with
    /// an image.
    Create(CreateRequest),
    /// `start`
    Start {
        /// The container.
        id: String,
    },
    /// `kill`
    Kill(KillRequest),
    /// `state`
    State {
        /// The container.
        id: String,
    },
    /// Any other subcommand, or a command line that the low-level runtime will refuse.
    PassThrough,
}

impl Invocation {
    /// Parses the arguments after the program's name.
    #[must_use]
    pub fn parse(args: Vec<OsString>) -> Self {
        let cwd = std::env::current_dir().unwrap_or_default();
        Self::parse_in(args, &cwd)
    }

    fn parse_in(args: Vec<OsString>, cwd: &Path) -> Self {
        let (args, own) = grammar::take_own_options(args);
        let [settings, low_level, group, interface, wait] = own;
        let wait = wait.and_then(|seconds| seconds.to_str()?.parse().ok());
        let wait = wait.map_or(Duration::ZERO, Duration::from_secs);
        let scan = scan(&args);
        let action = scan.as_ref().and_then(|scan| action(scan, cwd, wait));
        let value = |name| scan.as_ref().and_then(|scan| scan.global(name));
        let is_json = value("log-format").is_some_and(|format| format == "json");
        let (root, log) = (value("root"), value("log"));
        let subcommand = scan.as_ref().map(|scan| scan.subcommand);
        Self {
            global: GlobalOptions {
                root: root.map(PathBuf::from),
                log: log.map(PathBuf::from),
                log_format: match is_json {
                    true => LogFormat::Json,
                    false => LogFormat::Text,
                },
                settings: settings.map(PathBuf::from),
                low_level: low_level.map(PathBuf::from),
                group: group.map(PathBuf::from),
                interface,
            },
            action: action.unwrap_or(Action::PassThrough),
            args,
            subcommand,
        }
    }

    /// Refuses a checkpoint or restore for a shim that is too old or too new to be understood.
    /// Verbs that end or inspect a container are carried out for every shim: its command line is
    /// runc's, and a container that cannot be thawed or deleted would be worse.
    ///
    /// # Errors
    ///
    /// The caller's version is not served, and this is a checkpoint or a restore.
    pub fn check_interface(&self) -> Result<(), RuntimeError> {
        let (Action::Checkpoint(_) | Action::Restore(_), Some(given)) =
            (&self.action, &self.global.interface)
        else {
            return Ok(());
        };
        let version = given.to_str().and_then(|text| text.parse().ok());
        match version {
            Some(version) if interface::SERVED.contains(&version) => Ok(()),
            Some(version) if version < *interface::SERVED.start() => {
                Err(RuntimeError::ShimTooOld { version })
            }
            _ => Err(RuntimeError::ShimTooNew {
                version: given.to_string_lossy().into_owned(),
            }),
        }
    }
}

fn action(scan: &Scan<'_>, cwd: &Path, wait: Duration) -> Option<Action> {
    if scan.name == "kill" {
        return kill::request(scan).map(Action::Kill);
    }
    let id = scan.id().and_then(container_id)?;
    let within = |base: &Path, name| scan.value(name).map(|path| base.join(path));
    // `restore` changes into the bundle before it opens these; other verbs have no `--bundle`.
    let bundle = within(cwd, "bundle").or_else(|| within(cwd, "b"));
    let bundle = bundle.as_deref().unwrap_or(cwd);
    let image_path = within(bundle, "image-path").unwrap_or_else(|| cwd.join("checkpoint"));
    Some(match scan.name.to_str()? {
        "create" => Action::Create(create::request(scan, CreateVerb::Create, id, cwd, bundle)),
        "run" => Action::Create(create::request(scan, CreateVerb::Run, id, cwd, bundle)),
        "start" => Action::Start { id },
        "state" => Action::State { id },
        "checkpoint" => Action::Checkpoint(CheckpointRequest {
            id,
            image_path,
            work_path: within(bundle, "work-path"),
            after: if scan.has("leave-running") || scan.has("R") {
                AfterDump::LeaveRunning
            } else {
                AfterDump::Exit
            },
            pre_dump: if scan.has("pre-dump") {
                PreDump::Only
            } else {
                PreDump::No
            },
            parent_path: scan
                .value("parent-path")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            memory: memory_target(scan),
            criu: criu_options(scan),
            wait,
        }),
        "restore" => Action::Restore(RestoreRequest {
            id,
            bundle: bundle.to_owned(),
            image_path,
            work_path: within(bundle, "work-path"),
            pid_file: within(cwd, "pid-file"),
            mode: if scan.has("detach") || scan.has("d") {
                RestoreMode::Detached
            } else {
                RestoreMode::Attached
            },
        }),
        "resume" => Action::Resume { id },
        // crun's `delete --regex` names many containers.
        "delete" if scan.has("regex") || scan.has("r") => return None,
        "delete" => Action::Delete {
            id,
            mode: if scan.has("force") || scan.has("f") {
                DeleteMode::Force
            } else {
                DeleteMode::Stopped
            },
        },
        _ => return None,
    })
}

fn criu_options(scan: &Scan<'_>) -> BTreeSet<CriuOption> {
    let all = CriuOption::ALL.iter().copied();
    all.filter(|option| scan.has(option.name())).collect()
}

/// Finds incremental and lazy dumps.
fn memory_target(scan: &Scan<'_>) -> MemoryTarget {
    let has_value = |name| scan.value(name).is_some_and(|value| !value.is_empty());
    let elsewhere = has_value("parent-path")
        || has_value("page-server")
        || scan.has("lazy-pages")
        || scan.has("pre-dump");
    if elsewhere {
        MemoryTarget::Elsewhere
    } else {
        MemoryTarget::IntoImage
    }
}

/// Returns the id if runc accepts it (libcontainer `validateID`); otherwise runc itself refuses it.
fn container_id(id: &OsStr) -> Option<String> {
    let id = id.to_str()?;
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    let valid = !matches!(id, "" | "." | "..") && id.bytes().all(known);
    valid.then(|| id.to_owned())
}

#[cfg(test)]
mod tests;
