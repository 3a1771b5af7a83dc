//! `stasis metrics`: counters and gauges of this machine for Prometheus. Changes nothing.

mod containers;
mod contents;
mod operations;
mod text;

use std::io;
use std::os::fd::AsRawFd;
use std::path::{self, Path, PathBuf};

use clap::Args;
use rustix::fs::{Mode, OFlags, open};
use stasis_config::Settings;
use stasis_engine::error::operations_log::Totals;
use stasis_linux::file::{self, Access, Durability};
use stasis_linux::procfs::held_file;

use crate::answer::exit::Exit;
use crate::answer::write;
use crate::command_error::CommandError;
use crate::ps;
use text::{Family, Parts};

/// Print metrics of this machine in Prometheus' text format.
///
/// Covers operations, containers, GPU contents apart from images, and leftovers of killed
/// operations. stasis-metrics.timer writes them to a file each minute.
///
/// Exit code 0: the metrics are printed or written, and stasis_read_success tells which parts could
/// be read; 2: they cannot be written.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Write the metrics to this file in one step, for the textfile collector of Prometheus' node
    /// exporter, which reads files named *.prom.
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
}

/// Carries the command out and returns the exit code.
///
/// # Errors
/// The metrics cannot be written.
pub fn run(settings: &Settings, arguments: &Arguments) -> Result<Exit, CommandError> {
    let text = page(settings);
    match &arguments.textfile {
        Some(path) => {
            replace(path, &text).map_err(failed("write", path.display().to_string()))?;
        }
        None => write(&text)?,
    }
    Ok(Exit::Done)
}

/// Writes the file. Its directory is mostly another user's, who may put a link in its place: it is
/// opened once, and no link is followed there.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let absolute = path::absolute(path)?;
    let (Some(above), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(above, flags, Mode::empty())?;
    let held = held_file(
        std::process::id().cast_signed(),
        directory.as_raw_fd().cast_unsigned(),
    );
    let (access, durability) = (Access::Public, Durability::Volatile);
    file::replace(&held.join(name), text.as_bytes(), access, durability)
}

fn failed(what: &'static str, place: String) -> impl Fn(io::Error) -> CommandError {
    move |source| CommandError::Metrics {
        what,
        place: place.clone(),
        source,
    }
}

fn page(settings: &Settings) -> String {
    let mut parts = Parts::new();
    let mut families = vec![build()];
    let totals = Totals::read(&settings.paths.log_dir).map_err(CommandError::Log);
    if let Some(totals) = parts.read("operations", totals) {
        families.extend(operations::families(&totals));
    }
    families.extend(containers::families(&ps::all(settings)));
    families.extend(contents::families(settings, &mut parts));
    families.push(parts.family);
    families.iter().map(Family::to_string).collect()
}

fn build() -> Family {
    let mut family = Family::gauge("stasis_build_info", "1, with the version of stasis.");
    family.add(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    family
}
