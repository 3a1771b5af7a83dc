//! The command line of `stasis memory`.

use clap::Subcommand;
use stasis_config::Settings;

use super::flush::flush;
use super::prune::prunable;
use super::verify::verify;
use super::{MemoryCommandError, list, remove};
use crate::bulk_memory::in_use::Removed;
use crate::cli::answer::{Format, Output, show_all};

const LEFT: u8 = 1;
const IN_USE: &str = "; it stays for now, since it is in use";

/// What is done with bulk memory.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List the bulk memory on this machine.
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
        /// Names, or the beginnings of them; all without any.
        ids: Vec<String>,
        /// How it answers.
        #[command(flatten)]
        output: Output,
    },
    /// Remove the bulk memory of one checkpoint. Its image cannot be restored afterwards.
    Remove {
        /// Its name, or the beginning of it.
        id: String,
    },
    /// List bulk memory that no image needs, or that is more than the settings keep.
    ///
    /// That an image is gone is believed of one that was where it was written for an hour, and that
    /// was not exported by an engine or restored from elsewhere.
    Prune {
        /// Remove the listed bulk memory.
        #[arg(long)]
        force: bool,
    },
}

impl Verb {
    /// The format of the answer.
    #[must_use]
    pub fn format(&self) -> Format {
        match self {
            Self::List { output } | Self::Flush { output } | Self::Verify { output, .. } => {
                output.format()
            }
            Self::Remove { .. } | Self::Prune { .. } => Format::Text,
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
        Verb::Remove { id } => {
            let removed = remove(settings, &id)?;
            println!("{removed} is removed");
        }
        Verb::Prune { force } => {
            let found = prunable(settings)?;
            for left_over in &found {
                let stays = force && left_over.remove(settings)? == Removed::InUse;
                let note = if stays { IN_USE } else { "" };
                println!("{left_over}{note}");
            }
            if !(force || found.is_empty()) {
                println!("nothing was removed; --force removes these");
            }
        }
    }
    Ok(0)
}
