//! The operator's program: `stasis check`, and by the name `cuda-checkpoint` what NVIDIA's program of
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
    let Verb::Check { id, root, json } = arguments.verb;
    let located = locate(&id, root.as_deref()).map_err(CheckError::from)?;
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
