//! A checkpoint of what was stored before.

use std::io::Write;

use anyhow::Result;
use stasis_integration::host::installed::StasisHost;

use super::cell::{Cell, Contents, System, Tier};
use super::disk::DISK;
use super::measured::stasis_host;
use super::round::Setting;
use crate::figure::{Aim, Figure};

/// What the first checkpoint of a container writes, over what the second does if nothing has
/// changed.
pub(crate) fn second_checkpoint(screen: &mut dyn Write) -> Result<Figure> {
    let (_disk, stasis) = stasis_host()?;
    let _containerd = stasis.containerd()?;
    let system = System::Stasis {
        tier: Tier::Disk,
        threads: 0,
    };
    let cell = Cell {
        gib: 1,
        contents: Contents::Random,
        system,
    };
    let setting = Setting::of(&stasis, system)?;
    let bundle = setting.start("second", &cell)?;
    let mut stored = [used(&stasis)?, 0, 0];
    for number in 1..stored.len() {
        let [took, _] = setting.checkpoint(&bundle, &number.to_string(), &["--leave-running"])?;
        stored[number] = used(&stasis)?;
        let written = (stored[number] - stored[number - 1]) >> 10;
        writeln!(
            screen,
            "{cell}: checkpoint {number} wrote {written} KiB in {took:.2} s"
        )?;
    }
    setting.end(&bundle)?;
    let [first, second] = [stored[1] - stored[0], stored[2] - stored[1]];
    let parts = format!(
        "first {} MiB, second {} MiB, ratio ",
        first >> 20,
        second >> 20
    );
    Ok(Figure::of(
        parts,
        first as f64 / second as f64,
        Aim::AtLeast(5.0),
    ))
}

/// Bytes of the disk; files with several names count once.
fn used(stasis: &StasisHost) -> Result<u64> {
    stasis.host.run(&["sync", "-f", DISK])?;
    let text = stasis.host.run_for_text(&["du", "-sB1", DISK])?;
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}
