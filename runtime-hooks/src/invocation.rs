//! The command line of runc and crun, as far as it has to be understood.
//!
//! Callers mix long options with one and two dashes, `--opt value` and `--opt=value`, and repeat
//! options (podman gives `--leave-running` twice; go-runc writes `-no-subreaper`). We take what we
//! need from it and hand the rest on untouched; what we cannot make sense of is the low-level
//! runtime's to answer.

mod grammar;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use stasis_config::Flavor;

use grammar::{Scan, scan};

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Options before the subcommand.
    pub global: GlobalOptions,
    /// What is asked for.
    pub action: Action,
    /// The arguments, without our own.
    args: Vec<OsString>,
    /// Where in `args` the subcommand is.
    subcommand: Option<usize>,
}

/// The options before the subcommand that we need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GlobalOptions {
    /// `--root`
    pub root: Option<PathBuf>,
    /// `--log`
    pub log: Option<PathBuf>,
    /// `--log-format`
    pub log_format: LogFormat,
    /// `--stasis-config`, our own.
    pub settings: Option<PathBuf>,
    /// `--stasis-low-level`, our own: the low-level runtime instead of the one that the settings
    /// name, for a shim whose caller chose one.
    pub low_level: Option<PathBuf>,
}

/// How lines of the log look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `time="…" level=error msg="…"`
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `checkpoint`
    Checkpoint(CheckpointOptions),
    /// `restore`
    Restore(RestoreOptions),
    /// `resume`
    Resume {
        /// The container.
        id: String,
    },
    /// `delete`
    Delete {
        /// The container.
        id: String,
        /// Whether what still runs is ended.
        mode: DeleteMode,
    },
    /// Anything else, or something that the low-level runtime will refuse.
    PassThrough,
}

/// What becomes of the container after a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDump {
    /// It ends.
    Exit,
    /// It goes on.
    LeaveRunning,
}

/// Whether memory is only copied in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreDump {
    /// A whole checkpoint.
    No,
    /// `--pre-dump`
    Only,
}

/// Where a dump has memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryGoes {
    /// All of it in the image.
    IntoImage,
    /// Some of it elsewhere: in an earlier image, or on its way to another machine.
    Elsewhere,
}

/// Whether the runtime stays as the container's parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreMode {
    /// `--detach`
    Detached,
    /// The runtime ends with the container.
    Attached,
}

/// What `delete` does with a container that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMode {
    /// It is refused.
    Stopped,
    /// `--force`: it is ended, and so is an operation that is under way.
    Force,
}

/// The options of `checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// The container.
    pub id: String,
    /// `--image-path`, absolute; `./checkpoint` if not given, as for runc and crun.
    pub image_path: PathBuf,
    /// `--work-path`, absolute.
    pub work_path: Option<PathBuf>,
    /// `--leave-running`
    pub after: AfterDump,
    /// `--pre-dump`
    pub pre_dump: PreDump,
    /// `--parent-path`, `--lazy-pages`, `--page-server`
    pub memory: MemoryGoes,
}

/// The options of `restore`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreOptions {
    /// The container.
    pub id: String,
    /// `--bundle`, absolute; the working directory if not given.
    pub bundle: PathBuf,
    /// `--image-path`, taken from the bundle and made absolute; `./checkpoint` if not given.
    pub image_path: PathBuf,
    /// `--work-path`, absolute.
    pub work_path: Option<PathBuf>,
    /// `--pid-file`, absolute.
    pub pid_file: Option<PathBuf>,
    /// `--detach`
    pub mode: RestoreMode,
}

impl RestoreOptions {
    /// The paths that crun and runc take differently: crun goes into the bundle before it looks
    /// at any (crun src/restore.c), runc after the default image path and the pid file.
    fn paths(&self) -> Vec<(&'static str, &OsStr)> {
        let image_path = Some(("--image-path", self.image_path.as_os_str()));
        let pid_file = self.pid_file.as_ref();
        let pid_file = pid_file.map(|path| ("--pid-file", path.as_os_str()));
        image_path.into_iter().chain(pid_file).collect()
    }
}

impl Invocation {
    /// Understands the arguments after the program's name.
    #[must_use]
    pub fn parse(args: Vec<OsString>) -> Self {
        let cwd = std::env::current_dir().unwrap_or_default();
        Self::parse_in(args, &cwd)
    }

    fn parse_in(args: Vec<OsString>, cwd: &Path) -> Self {
        let (args, own) = grammar::take_own_options(args);
        let scan = scan(&args);
        let action = scan.as_ref().and_then(|scan| action(scan, cwd));
        let mut global = scan.as_ref().map(global_options).unwrap_or_default();
        global.settings = own.settings;
        global.low_level = own.low_level;
        let subcommand = scan.map(|scan| scan.subcommand);
        Self {
            global,
            action: action.unwrap_or(Action::PassThrough),
            args,
            subcommand,
        }
    }

    /// The arguments for the low-level runtime: for runc byte for byte.
    #[must_use]
    pub fn pass_on(&self, flavor: Flavor) -> Vec<OsString> {
        self.pass_on_with(flavor, &[])
    }

    /// The same with options of ours after the subcommand.
    #[must_use]
    pub fn pass_on_with(&self, flavor: Flavor, extra: &[(&str, &OsStr)]) -> Vec<OsString> {
        let Some(subcommand) = self.subcommand else {
            return self.args.clone();
        };
        let (global, rest) = self.args.split_at(subcommand + 1);
        let (absolute, rest) = match (flavor, &self.action) {
            (Flavor::Crun, Action::Restore(options)) => {
                let absolute = options.paths();
                let rest = grammar::for_crun(rest, &absolute);
                (absolute, rest)
            }
            (Flavor::Crun, Action::Checkpoint(_)) => (Vec::new(), grammar::for_crun(rest, &[])),
            _ => (Vec::new(), rest.to_vec()),
        };
        let mut args = global.to_vec();
        for (name, value) in extra.iter().chain(&absolute) {
            args.extend([OsString::from(name), value.to_os_string()]);
        }
        args.extend(rest);
        args
    }
}

fn global_options(scan: &Scan<'_>) -> GlobalOptions {
    let json = scan
        .global("log-format")
        .is_some_and(|format| format == "json");
    GlobalOptions {
        root: scan.global("root").map(PathBuf::from),
        log: scan.global("log").map(PathBuf::from),
        log_format: if json {
            LogFormat::Json
        } else {
            LogFormat::Text
        },
        settings: None,
        low_level: None,
    }
}

fn action(scan: &Scan<'_>, cwd: &Path) -> Option<Action> {
    let id = scan.id.and_then(container_id)?;
    let within = |base: &Path, name| scan.value(name).map(|path| base.join(path));
    // `restore` goes into the bundle before it opens these; other verbs have no such option.
    let bundle = within(cwd, "bundle").or_else(|| within(cwd, "b"));
    let bundle = bundle.as_deref().unwrap_or(cwd);
    let image_path = within(bundle, "image-path").unwrap_or_else(|| cwd.join("checkpoint"));
    Some(match scan.name.to_str()? {
        "checkpoint" => Action::Checkpoint(CheckpointOptions {
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
            memory: memory_goes(scan),
        }),
        "restore" => Action::Restore(RestoreOptions {
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

/// Incremental and lazy dumps.
fn memory_goes(scan: &Scan<'_>) -> MemoryGoes {
    let has_value = |name| scan.value(name).is_some_and(|value| !value.is_empty());
    let elsewhere = has_value("parent-path")
        || has_value("page-server")
        || scan.has("lazy-pages")
        || scan.has("pre-dump");
    if elsewhere {
        MemoryGoes::Elsewhere
    } else {
        MemoryGoes::IntoImage
    }
}

/// What runc accepts as an id (libcontainer `validateID`); anything else it refuses by itself.
fn container_id(id: &OsStr) -> Option<String> {
    let id = id.to_str()?;
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-.".contains(&byte);
    let valid = !matches!(id, "" | "." | "..") && id.bytes().all(known);
    valid.then(|| id.to_owned())
}

#[cfg(test)]
mod tests;
