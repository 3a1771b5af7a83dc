//! `stasis setup`: writes the settings of an engine, as the engine documents them, so that it calls
//! stasis; shows the difference, and keeps all other settings.

pub(crate) mod change;
mod containerd;
mod contents;
mod crio;
mod docker;
pub(crate) mod in_use;
mod json;
mod podman;
pub(crate) mod tables;

use std::env;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::answer::Output;
use change::Change;

/// An engine that can be told of stasis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// A runtime handler of CRI in /etc/containerd.
    Containerd,
    /// A runtime handler in /etc/crio/crio.conf.d.
    Crio,
    /// A runtime in /etc/docker/daemon.json.
    Docker,
    /// A runtime in /etc/containers/containers.conf.d.
    Podman,
}

/// Configure a container engine to use stasis, or undo that.
///
/// Shows the changes of the engine's settings, as `diff -u` does, and what is left to do, such as a
/// restart of the engine. Keeps all other settings.
///
/// Exit code 0: the settings are written, or need no change; 2: nothing was changed, unless one of
/// several files could not be written.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The engine.
    #[arg(value_name = "ENGINE")]
    engine: Engine,
    /// Write nothing, and show the changes.
    #[arg(long)]
    dry_run: bool,
    /// Remove stasis from the settings. Refused while a container needs it.
    #[arg(long)]
    undo: bool,
    /// Also store GPU contents apart from images, in this directory (gpu_contents.directory in the
    /// settings of stasis): on a tmpfs for speed, on a disk to keep them. Engines copy contents in
    /// images once more.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "undo")]
    contents: Option<PathBuf>,
    /// How it answers.
    #[command(flatten)]
    pub output: Output,
}

/// The direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Adds stasis to the engine's settings.
    Set,
    /// Removes stasis from the engine's settings.
    Undo,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A program of stasis is not beside this one.
    #[error("there is no {0}; it must be beside `stasis`: install stasis again")]
    NoProgram(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {what} {path}")]
    File {
        /// "read" or "write".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file of settings cannot be understood, so nothing is added to it.
    #[error("{path} cannot be changed: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// Containers would have a shim or a handler that their engine no longer knows.
    #[error("containers still need stasis: {}; end them first", .0.join(", "))]
    InUse(Vec<String>),
}

impl SetupError {
    /// Refuses to undo settings that these containers need.
    fn refuse(containers: Vec<String>) -> Result<(), Self> {
        match containers.is_empty() {
            true => Ok(()),
            false => Err(Self::InUse(containers)),
        }
    }
}

/// A file of an engine, and its change.
#[derive(Debug, Serialize)]
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// The difference, as `diff -u` shows it.
    pub difference: String,
}

/// The changes, written or not.
#[derive(Debug, Serialize)]
pub struct SetupReport {
    /// The files; empty if nothing is to be changed.
    pub files: Vec<Changed>,
    /// Whether they were written.
    pub written: bool,
    /// The next step for the user.
    pub next: String,
}

/// Adds stasis to an engine's settings, or removes it.
///
/// # Errors
/// Nothing was changed, unless a file could not be written: files before it were.
pub fn setup(arguments: &Arguments) -> Result<SetupReport, SetupError> {
    let way = if arguments.undo { Way::Undo } else { Way::Set };
    let change = match arguments.engine {
        Engine::Containerd => {
            let shim = beside_this("containerd-shim-stasis-v2")?;
            if way == Way::Undo {
                containerd::nobody_needs(&shim)?;
            }
            tables::changed(containerd::SETTINGS, |toml| {
                containerd::edit(toml, &shim, way)
            })
        }
        Engine::Crio => {
            let runtime = beside_this(RUNTIME)?;
            if way == Way::Undo {
                crio::nobody_needs_it()?;
            }
            tables::changed(crio::SETTINGS, |toml| crio::edit(toml, &runtime, way))
        }
        Engine::Docker => docker::change(&beside_this(RUNTIME)?, way),
        Engine::Podman => {
            let runtime = beside_this(RUNTIME)?;
            tables::changed(podman::SETTINGS, |toml| podman::edit(toml, &runtime, way))
        }
    }?;
    let contents = arguments.contents.as_deref().map(|directory| {
        tables::changed(stasis_config::DEFAULT_PATH, |toml| {
            contents::edit(toml, directory)
        })
    });
    let changes = [change].into_iter().chain(contents.transpose()?);
    let changes: Vec<Change> = changes.filter(Change::is_one).collect();
    let written = !arguments.dry_run && !changes.is_empty();
    if written {
        changes.iter().try_for_each(Change::write)?;
    }
    Ok(SetupReport {
        written,
        next: match written {
            true => arguments.engine.next(way),
            false => String::new(),
        },
        files: changes.iter().map(Change::shown).collect(),
    })
}

/// The OCI runtime that engines are configured with.
const RUNTIME: &str = "stasis-runtime";

/// Finds a program installed beside this one.
fn beside_this(name: &str) -> Result<String, SetupError> {
    let own = env::current_exe().map_err(|source| SetupError::File {
        what: "read",
        path: "/proc/self/exe".into(),
        source,
    })?;
    text(own.parent().unwrap_or(Path::new("/")).join(name))
}

fn text(program: PathBuf) -> Result<String, SetupError> {
    match program.to_str() {
        Some(text) if program.is_file() => Ok(text.to_owned()),
        _ => Err(SetupError::NoProgram(program)),
    }
}

impl Engine {
    fn next(self, way: Way) -> String {
        let next = match self {
            Self::Containerd => "run `systemctl restart containerd`: its containers go on",
            Self::Crio => "run `systemctl restart crio`: its containers go on",
            // A reload reads `runtimes`, and not `experimental`.
            Self::Docker => {
                "run `systemctl restart docker`: its containers end, unless it has live-restore"
            }
            Self::Podman if way == Way::Set => return podman::has_criu(),
            Self::Podman => "",
        };
        next.to_owned()
    }
}

impl fmt::Display for SetupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            f.write_str(&file.difference)?;
        }
        match (self.files.is_empty(), self.written) {
            (true, _) => f.write_str("nothing to change")?,
            (false, false) => f.write_str("nothing was written")?,
            (false, true) => f.write_str("written")?,
        }
        if !self.next.is_empty() {
            write!(f, "; now {}", self.next)?;
        }
        Ok(())
    }
}
