//! The command line.

use std::sync::OnceLock;

use clap::Parser;

/// Measures stasis without a GPU, as ratios and differences within one run.
///
/// It ends with a line for each case, `bench CASE FIGURES VERDICT`, and fails if one missed its aim
/// or could not be measured.
#[derive(Debug, Parser)]
#[command(name = "bench")]
pub(crate) struct Options {
    /// The cases to measure: all, if none is named.
    #[arg(value_name = "CASE", value_parser = crate::names())]
    pub(crate) cases: Vec<String>,
    /// The MiB that the cases of GPU contents take for a GiB; another number makes them faster, and
    /// their figures mean nothing.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) mib_per_gib: u64,
}

/// Returns the parsed command line. A wrong one ends the program.
pub(crate) fn get() -> &'static Options {
    static OPTIONS: OnceLock<Options> = OnceLock::new();
    OPTIONS.get_or_init(Options::parse)
}
