//! The command line of `stasis memory`.

use clap::Subcommand;
use stasis_config::Settings;

use super::flush::flush;
use super::outcome::{Done, Named, Prune, Pruned};
use super::prune::prunable;
use super::verify::verify;
use super::{MemoryCommandError, list, remove};
use crate::cli::answer::{Format, Output, show, show_all};

const LEFT: u8 = 1;

/// What is done with bulk memory.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the bulk memory on this machine.
    ///
    /// Exit code 0: it is listed, if there is any; 2: it cannot be read.
    List {
        /// How it answers.
        #[command(flatten)]
        output: Output,
    },
    /// Copy what is in memory alone to disk, now.
    ///
    /// Exit code 0: all is on disk; 1: something is not, and is tried again.
    Flush {
        /// How it answers.
        #[command(flatten)]
        output: Output,
    },
    /// Read bulk memory as the disk has it, and compare it with its checksums.
    ///
    /// Exit code 0: all of it is whole; 1: something is damaged, and the images that need it cannot
    /// be restored.
    Verify {
        /// Names, or the beginnings of them, as `stasis memory list` shows them; all without any.
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        /// How it answers.
        #[command(flatten)]
        output: Output,
    },
    /// Remove the bulk memory of one checkpoint.
    ///
    /// Its image cannot be restored afterwards.
    ///
    /// Exit code 0: it is removed; 2: it is not, or not there.
    Remove {
        /// Its name, or the beginning of it, as `stasis memory list` shows it.
        id: String,
        /// How it answers.
        #[command(flatten)]
        output: Output,
    },
    /// List bulk memory that no image needs, or that is more than the settings keep.
    ///
    /// With --force it is removed. An image counts as gone if it was where it was written for an
    /// hour, and was not exported by an engine or restored from elsewhere. `stasis gc` removes
    /// images as well.
    ///
    /// Exit code 0: it is listed, or removed if nobody uses it; 2: something cannot be read or
    /// removed.
    Prune {
        /// Remove the listed bulk memory.
        #[arg(long, visible_alias = "yes")]
        force: bool,
        /// How it answers.
        #[command(flatten)]
        output: Output,
    },
}

impl Verb {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        match self {
            Self::List { output }
            | Self::Flush { output }
            | Self::Verify { output, .. }
            | Self::Remove { output, .. }
            | Self::Prune { output, .. } => output.format(),
        }
    }
}

/// Carries the command out; its exit code.
///
/// # Errors
/// [`MemoryCommandError`].
pub fn run(settings: &Settings, verb: Verb) -> Result<u8, MemoryCommandError> {
    match verb {
        Verb::List { output } => {
            show_all(&list(settings)?, output.format())?;
        }
        Verb::Flush { output } => {
            let flushed = flush(settings);
            show_all(&flushed, output.format())?;
            if flushed.iter().any(|copy| !copy.durable) {
                return Ok(LEFT);
            }
        }
        Verb::Verify { ids, output } => {
            let verified = verify(settings, &ids)?;
            show_all(&verified, output.format())?;
            if verified.iter().any(|store| store.damaged > 0) {
                return Ok(LEFT);
            }
        }
        Verb::Remove { id, output } => {
            let (image_id, result) = (remove(settings, &id)?, Done::Removed);
            show(&Named { image_id, result }, output.format())?;
        }
        Verb::Prune { force, output } => {
            let what = if force { Prune::Remove } else { Prune::Show };
            prune(settings, what, output.format())?;
        }
    }
    Ok(0)
}

fn prune(settings: &Settings, prune: Prune, format: Format) -> Result<(), MemoryCommandError> {
    let found = prunable(settings)?;
    let pruned = found
        .iter()
        .map(|left_over| Pruned::of(settings, left_over, prune));
    let pruned: Vec<Pruned> = pruned.collect::<Result<_, _>>()?;
    show_all(&pruned, format)?;
    match (format, prune) {
        (Format::Text, _) if pruned.is_empty() => println!("there is nothing to remove"),
        (Format::Text, Prune::Show) => println!("nothing was removed; --force removes these"),
        _ => {}
    }
    Ok(())
}
