//! The whole life of a container that does nothing.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;

use crate::figure::{Figure, Sample};
use crate::shims;
use crate::tasks::{Api, Times};

const WARM_UPS: usize = 3;
/// With 30, containerd's shim against itself gave ratios from 0.95 to 1.09 on a loaded machine.
const ROUNDS: usize = 100;
/// The kernel takes down what a container leaves, its mounts and cgroups, for a moment longer: it
/// must not do so in the other shim's time.
const PAUSE: Duration = Duration::from_millis(50);

/// A part of a container's life.
type Part = fn(&Times) -> Duration;

const PARTS: [(&str, Part); 4] = [
    ("create", |times| times.create),
    ("start", |times| times.start),
    ("exit", |times| times.exit),
    ("delete", |times| times.delete),
];

/// Create, start, exit and delete of a container that runs `true`.
pub(crate) fn shim_run(screen: &mut dyn Write) -> Result<Figure> {
    let stasis = shims::stasis_host()?;
    let _containerd = stasis.containerd()?;
    let api = Api::connect(&stasis)?;
    let [go, stasis] = shims::in_turns(WARM_UPS, ROUNDS, |runtime, id| {
        std::thread::sleep(PAUSE);
        api.run(runtime, id, &["/bin/true"])
    })?;
    for (name, part) in PARTS {
        let [go, stasis] = [&go, &stasis].map(|times| Sample::milliseconds(times.iter().map(part)));
        writeln!(screen, "{name} of `true`: go {go} ms, stasis {stasis} ms")?;
    }
    let [go, stasis] =
        [go, stasis].map(|times| Sample::milliseconds(times.iter().map(Times::whole)));
    Ok(Figure::ratio(&go, &stasis, "ms", 1.0))
}
