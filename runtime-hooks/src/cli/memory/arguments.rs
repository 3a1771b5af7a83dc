//! The command line of `stasis memory`.

use clap::Subcommand;

/// What is done with bulk memory.
#[derive(Debug, Subcommand)]
pub enum MemoryVerb {
    /// List the bulk memory on this machine.
    List {
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy what is in memory alone to disk, now.
    ///
    /// Exit code 0: all is on disk; 1: something is not, and is tried again.
    Flush {
        /// Print the list of copies as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read bulk memory as the disk has it, and compare it with its checksums.
    ///
    /// Exit code 0: all of it is whole; 1: something is damaged, and the images that need it cannot
    /// be restored.
    Verify {
        /// Names, or the beginnings of them; all without any.
        ids: Vec<String>,
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
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
