//! The figures that matter, as ratios and differences within one run.

mod engine;
mod figure;
mod gpu_path;
mod memory;
mod options;
mod runtime;
mod shim_checkpoint;
mod shim_load;
mod shim_memory;
mod shim_run;
mod shims;
mod tasks;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::builder::PossibleValuesParser;
use figure::Figure;
use stasis_integration::check::ended::ended;

/// Measures one case, and prints details meanwhile.
type Case = fn(&mut dyn Write) -> Result<Figure>;

/// The memory of the runtime comes first, since the kernel only reports the peak of all children so
/// far.
const CASES: [(&str, Case); 11] = [
    ("passthrough-memory-mb", runtime::passthrough_memory),
    ("passthrough-extra-ms", runtime::passthrough_extra),
    ("engine-100-ms", engine::of_100_processes),
    ("eight-processes", engine::eight_processes),
    ("gpu-path-out", gpu_path::out),
    ("gpu-path-in", gpu_path::back),
    ("standin-copy", gpu_path::standin_copy),
    ("shim-run", shim_run::shim_run),
    ("shim-memory", shim_memory::shim_memory),
    ("shim-checkpoint", shim_checkpoint::shim_checkpoint),
    ("shim-load", shim_load::shim_load),
];

/// Returns the names of cases that a command line may have.
fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(CASES.map(|(name, _)| name))
}

fn main() -> ExitCode {
    ended(measure(&options::get().cases))
}

fn measure(wanted: &[String]) -> Result<()> {
    let mut screen = std::io::stdout().lock();
    let mut lines = Vec::new();
    let mut missed = Vec::new();
    for (name, case) in CASES {
        if !wanted.is_empty() && !wanted.iter().any(|other| other == name) {
            continue;
        }
        // A case that cannot be measured does not stop the others.
        let measured = case(&mut screen);
        if !measured.as_ref().is_ok_and(Figure::passes) {
            missed.push(name);
        }
        lines.push(match measured {
            Ok(figure) => format!("bench {name} {figure}"),
            Err(error) => format!("bench {name} not measured: {error:#}: FAIL"),
        });
    }
    for line in lines {
        writeln!(screen, "{line}")?;
    }
    ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
    Ok(())
}
