//! What was measured as tables in Markdown.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;

use super::cell::{Contents, SYSTEMS};
use super::measured::Measured;
use crate::figure::Sample;

/// All systems with the same memory, in the order of [`SYSTEMS`].
pub(crate) struct Row {
    pub(crate) gib: u64,
    pub(crate) contents: Contents,
    pub(crate) measured: Vec<Option<Measured>>,
}

/// One of the things that are measured.
pub(crate) struct Quantity {
    pub(crate) title: &'static str,
    pub(crate) of: fn(&Measured) -> Option<&Sample>,
    is_time: bool,
}

pub(crate) const DUMP: Quantity = Quantity {
    title: "checkpoint, s",
    of: |measured| Some(&measured.dump),
    is_time: true,
};
pub(crate) const RESTORE: Quantity = Quantity {
    title: "restore, s",
    of: |measured| Some(&measured.restore),
    is_time: true,
};
const DURABLE: Quantity = Quantity {
    title: "until durable, s",
    of: |measured| measured.durable.as_ref(),
    is_time: true,
};
const PEAK: Quantity = Quantity {
    title: "memory at most, over the process's",
    of: |measured| Some(&measured.peak),
    is_time: false,
};

/// Writes the tables: medians, and how many times as fast as CRIU at the same place.
pub(crate) fn write(screen: &mut dyn Write, rows: &[Row]) -> Result<()> {
    for quantity in [&DUMP, &DURABLE, &RESTORE, &PEAK] {
        let mut text = format!("\n| {} |", quantity.title);
        SYSTEMS
            .iter()
            .try_for_each(|system| write!(text, " {system} |"))?;
        text.push_str(&format!("\n|{}", " --- |".repeat(1 + SYSTEMS.len())));
        for row in rows {
            write!(text, "\n| {} GiB {} |", row.gib, row.contents.name())?;
            for index in 0..SYSTEMS.len() {
                write!(text, " {} |", entry(row, index, quantity))?;
            }
        }
        writeln!(screen, "{text}")?;
    }
    Ok(())
}

fn entry(row: &Row, index: usize, quantity: &Quantity) -> String {
    let Some(value) = median(row, index, quantity) else {
        return String::new();
    };
    let baseline = SYSTEMS[index].baseline();
    match median(row, baseline, quantity) {
        Some(base) if index != baseline && quantity.is_time => {
            format!("{value:.2} ({:.1}x)", base / value)
        }
        _ => format!("{value:.2}"),
    }
}

/// The median of what was measured there.
pub(crate) fn median(row: &Row, index: usize, quantity: &Quantity) -> Option<f64> {
    let measured = row.measured.get(index)?.as_ref()?;
    (quantity.of)(measured).map(Sample::median)
}
