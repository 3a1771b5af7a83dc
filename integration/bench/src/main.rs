//! The figures that matter, as ratios and differences within one run.
//!
//! `bench` measures all cases but `bulk-tables`, which takes most of an hour, `bench [--only]
//! CASE...` some of them. It ends with a line for each, `bench CASE FIGURES VERDICT`, and fails if
//! one missed its aim or could not be measured. For those of bulk memory, `--rounds N` says how
//! often each is measured, `--mib-per-gib N` makes them smaller, and `--plots DIRECTORY` says where
//! the tables' plots go.

mod bulk;
mod engine;
mod figure;
mod gpu_path;
mod options;
mod runtime;
mod shim_checkpoint;
mod shim_load;
mod shim_memory;
mod shim_run;
mod shims;
mod tasks;

use std::io::Write;

use anyhow::{Result, ensure};
use figure::Figure;

/// Measures, and tells the details on the way.
type Case = fn(&mut dyn Write) -> Result<Figure>;

/// Only measured if it is named.
const TABLES: &str = "bulk-tables";

/// The memory of the runtime comes first, since the kernel only tells the peak of all children so
/// far.
const CASES: [(&str, Case); 18] = [
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
    ("dump-ram-4g", bulk::dump_ram),
    ("restore-ram-4g", bulk::restore_ram),
    ("dump-disk-4g", bulk::dump_disk),
    ("dump-half-zero", bulk::dump_half_zero),
    ("second-checkpoint", bulk::second_checkpoint),
    ("peak-memory", bulk::peak_memory),
    (TABLES, bulk::tables),
];

fn main() -> Result<()> {
    let wanted = options::parse(std::env::args().skip(1))?;
    for name in &wanted {
        let known = CASES.map(|(name, _)| name);
        ensure!(
            known.contains(&name.as_str()),
            "there is no case {name}, but {}",
            known.join(", ")
        );
    }
    let mut screen = std::io::stdout().lock();
    let mut lines = Vec::new();
    let mut missed = Vec::new();
    for (name, case) in CASES {
        let is_wanted = match wanted.as_slice() {
            [] => name != TABLES,
            names => names.iter().any(|other| other == name),
        };
        if !is_wanted {
            continue;
        }
        // One that cannot be measured does not keep the others from being.
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
