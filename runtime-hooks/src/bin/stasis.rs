//! The operator's program: `stasis check`, `stasis memory`, and by the name `cuda-checkpoint` what NVIDIA's program of
//! that name does.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use stasis::cancel::Cancel;
use stasis::check::{CheckError, check};
use stasis::cuda_checkpoint;
use stasis::error::chain;
use stasis::locate::locate;
use stasis::memory_command::{self, Prune};
use stasis::watchdog;
use stasis_config::Settings;

/// Looks after checkpoints of GPU containers.
#[derive(Debug, Parser)]
#[command(name = "stasis", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// The settings, in place of /etc/stasis/stasis.toml.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Tell whether a running container could be checkpointed, and what is in the way; changes nothing.
    ///
    /// Exit code 0: it could; 1: it would be refused; 2: it could not be looked at.
    Check {
        /// The container's id, or the beginning of it.
        id: String,
        /// Where its low-level runtime keeps it; looked for where engines usually have it.
        #[arg(long)]
        root: Option<PathBuf>,
        /// Tell it as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Bulk memory that checkpoints keep apart from their images (bulk_memory.tier "disk" and "ram").
    Memory {
        #[command(subcommand)]
        verb: MemoryVerb,
    },
}

#[derive(Debug, Subcommand)]
enum MemoryVerb {
    /// Show what is kept on this machine.
    List {
        /// Tell it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove what is kept for one checkpoint. Its image does not restore any more.
    Remove {
        /// Its name, or the beginning of it.
        id: String,
    },
    /// Show what is kept for images that are not where they were put.
    ///
    /// Images that were moved, or are in an engine's store, still need theirs.
    Prune {
        /// Remove it.
        #[arg(long)]
        force: bool,
    },
}

const REFUSED: u8 = 1;
const NO_ANSWER: u8 = 2;

fn main() -> ExitCode {
    let called = env::args_os().next().unwrap_or_default();
    let code = if Path::new(&called).file_name() == Some(cuda_checkpoint::NAME.as_ref()) {
        cuda_checkpoint::main(env::args_os())
    } else {
        // A wrong command line ends with 2 here.
        run(Arguments::parse()).unwrap_or_else(|error| {
            eprintln!("stasis: {}", chain(error.as_ref()));
            NO_ANSWER
        })
    };
    watchdog::end_in_spite_of_calls(code);
    ExitCode::from(code)
}

fn run(arguments: Arguments) -> Result<u8> {
    let settings = Settings::load(arguments.config.as_deref())?;
    match arguments.verb {
        Verb::Check { id, root, json } => run_check(settings, &id, root.as_deref(), json),
        Verb::Memory { verb } => run_memory(&settings, verb).map(|()| 0),
    }
}

fn run_memory(settings: &Settings, verb: MemoryVerb) -> Result<()> {
    match verb {
        MemoryVerb::List { json } => {
            let kept = memory_command::list(settings)?;
            if json {
                let text = serde_json::to_string_pretty(&kept).context("the list is no JSON")?;
                println!("{text}");
            } else {
                kept.iter().for_each(|kept| println!("{kept}"));
            }
        }
        MemoryVerb::Remove { id } => {
            let removed = memory_command::remove(settings, &id)?;
            println!("{removed} is removed");
        }
        MemoryVerb::Prune { force } => {
            let what = if force { Prune::Remove } else { Prune::Show };
            let found = memory_command::prune(settings, what)?;
            found.iter().for_each(|line| println!("{line}"));
            if !(force || found.is_empty()) {
                println!("nothing was removed; --force removes these");
            }
        }
    }
    Ok(())
}

fn run_check(settings: Settings, id: &str, root: Option<&Path>, json: bool) -> Result<u8> {
    let located = locate(id, root).map_err(CheckError::from)?;
    let engine = located.engine(settings, Cancel::not_needed());
    let report = check(&engine, &located.container)?;
    if json {
        let text = serde_json::to_string_pretty(&report).context("the report is no JSON")?;
        println!("{text}");
    } else {
        println!("{report}");
    }
    Ok(if report.checkpointable { 0 } else { REFUSED })
}
