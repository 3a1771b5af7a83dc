//! The command line.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

/// What the cases of bulk memory are told.
#[derive(Debug)]
pub(crate) struct Options {
    /// How often each thing is measured.
    pub(crate) rounds: usize,
    /// What they take for a GiB; 1024 for figures that mean something.
    pub(crate) mib_per_gib: u64,
    /// Where plots go.
    pub(crate) plots: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 3,
            mib_per_gib: 1024,
            plots: None,
        }
    }
}

static OPTIONS: OnceLock<Options> = OnceLock::new();

/// Reads the command line; the cases that it names.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Vec<String>> {
    let mut options = Options::default();
    let mut cases = Vec::new();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("{argument} what?"))
        };
        match argument.as_str() {
            "--only" => cases.push(value()?),
            "--rounds" => options.rounds = value()?.parse().context("--rounds")?,
            "--mib-per-gib" => options.mib_per_gib = value()?.parse().context("--mib-per-gib")?,
            "--plots" => options.plots = Some(value()?.into()),
            _ => cases.push(argument),
        }
    }
    ensure!(options.rounds > 0, "nothing is known after no round");
    OPTIONS.get_or_init(|| options);
    Ok(cases)
}

/// What the command line says.
pub(crate) fn get() -> &'static Options {
    OPTIONS.get_or_init(Options::default)
}
