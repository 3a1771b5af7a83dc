//! Checkpoints of much memory: plain runc and CRIU beside stasis.
//!
//! Memory that a virtual machine gives back to its host costs ten times as much when it is touched
//! again as memory that it still has. So touched memory is held until right before each step that
//! is timed, for both sides; without that the ratios are noise.

mod cell;
mod chart;
mod disk;
mod huge_pages;
mod measured;
mod memory;
mod round;
mod second;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use self::cell::{CONTENTS, Cell, Contents, SYSTEMS, System, Tier};
use self::measured::{Measured, measure};
use crate::figure::{Aim, Figure};
use crate::options;

pub(crate) use self::memory::warm;
pub(crate) use self::second::second_checkpoint;

/// Sizes of the tables, GiB.
const SIZES: [u64; 3] = [1, 4, 8];
/// The size of the figures, GiB.
const SIZE: u64 = 4;

fn of_figures(contents: Contents, system: System) -> Cell {
    Cell {
        gib: SIZE,
        contents,
        system,
    }
}

fn stasis(tier: Tier) -> System {
    System::Stasis { tier, threads: 0 }
}

/// The two have been measured in turns.
fn pair(screen: &mut dyn Write, cells: [Cell; 2]) -> Result<[Measured; 2]> {
    let mut measured = measure(screen, &cells)?;
    let (Some(second), Some(first)) = (measured.pop(), measured.pop()) else {
        bail!("nothing was measured");
    };
    match (first, second) {
        (Ok(first), Ok(second)) => Ok([first, second]),
        (Err(why), _) | (_, Err(why)) => bail!(why),
    }
}

/// CRIU's times with huge pages are told, so that it is seen what they alone give.
fn on_tmpfs(screen: &mut dyn Write) -> Result<[Measured; 2]> {
    let systems = [System::PlainTmpfs, System::PlainHuge, stasis(Tier::Ram)];
    let cells = systems.map(|system| of_figures(Contents::Random, system));
    let measured = measure(screen, &cells)?;
    let measured: Result<Vec<_>, _> = measured.into_iter().collect();
    let measured = measured.map_err(anyhow::Error::msg)?;
    let Ok([plain, huge, ours]) = <[Measured; 3]>::try_from(measured) else {
        bail!("nothing was measured");
    };
    let (name, dump, restore) = (System::PlainHuge, huge.dump, huge.restore);
    writeln!(screen, "{name}: dump {dump} s, restore {restore} s")?;
    Ok([plain, ours])
}

fn ratio(names: [&str; 2], times: [&crate::figure::Sample; 2], at_least: f64) -> Figure {
    let [slow, fast] = times;
    let parts = format!("{} {slow} s, {} {fast} s, ratio ", names[0], names[1]);
    Figure::of(parts, slow.median() / fast.median(), Aim::AtLeast(at_least))
}

const SIDES: [&str; 2] = ["runc and CRIU", "stasis"];

/// A dump into memory, over that of CRIU on a plain tmpfs.
pub(crate) fn dump_ram(screen: &mut dyn Write) -> Result<Figure> {
    let [plain, ours] = on_tmpfs(screen)?;
    Ok(ratio(SIDES, [&plain.dump, &ours.dump], 3.0))
}

/// A restore from memory, likewise.
pub(crate) fn restore_ram(screen: &mut dyn Write) -> Result<Figure> {
    let [plain, ours] = on_tmpfs(screen)?;
    Ok(ratio(SIDES, [&plain.restore, &ours.restore], 5.0))
}

/// A dump that is safe on a disk when it is over.
pub(crate) fn dump_disk(screen: &mut dyn Write) -> Result<Figure> {
    let systems = [System::PlainDisk, stasis(Tier::Disk)];
    let cells = systems.map(|system| of_figures(Contents::Random, system));
    let [plain, ours] = pair(screen, cells)?;
    Ok(ratio(SIDES, [plain.durable()?, ours.durable()?], 1.4))
}

/// The same of memory that is half zeros, over memory that is not.
pub(crate) fn dump_half_zero(screen: &mut dyn Write) -> Result<Figure> {
    let contents = [Contents::Random, Contents::HalfZero];
    let cells = contents.map(|contents| of_figures(contents, stasis(Tier::Disk)));
    let [full, half] = pair(screen, cells)?;
    let names = ["full", "half zero"];
    Ok(ratio(names, [full.durable()?, half.durable()?], 1.8))
}

/// The most memory that the machine has in use during a dump into memory, over what the process
/// has.
pub(crate) fn peak_memory(screen: &mut dyn Write) -> Result<Figure> {
    let [plain, ours] = on_tmpfs(screen)?;
    let parts = format!("{} {}, {} {}, ", SIDES[0], plain.peak, SIDES[1], ours.peak);
    Ok(Figure::of(parts, ours.peak.median(), Aim::AtMost(1.15)))
}

/// Everything, as tables and plots. The figure is how many things could not be measured, for lack
/// of memory: a table with gaps is none.
pub(crate) fn tables(screen: &mut dyn Write) -> Result<Figure> {
    let mut missing = 0.0;
    let mut rows = Vec::new();
    for gib in SIZES {
        for contents in CONTENTS {
            let cells = SYSTEMS.map(|system| Cell {
                gib,
                contents,
                system,
            });
            let measured = measure(screen, &cells)?;
            for (cell, measured) in cells.iter().zip(&measured) {
                if let Err(why) = measured {
                    missing += 1.0;
                    writeln!(screen, "{cell}: {why}")?;
                }
            }
            rows.push(table::Row {
                gib,
                contents,
                measured: measured.into_iter().map(Result::ok).collect(),
            });
        }
    }
    table::write(screen, &rows)?;
    chart::write(&plots(), &rows)?;
    Ok(Figure::of(
        "not measured: ".to_owned(),
        missing,
        Aim::AtMost(0.0),
    ))
}

fn plots() -> PathBuf {
    let figures = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures");
    options::get().plots.clone().unwrap_or_else(figures)
}
