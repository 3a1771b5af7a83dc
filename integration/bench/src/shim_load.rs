//! Two hundred containers, and two thousand processes that are added to them.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use stasis_integration::load::{Fate, Outcome, Size};

use crate::figure::{Aim, Figure, Sample};
use crate::shims;

/// The programs of the shims, in the order of [`shims::RUNTIMES`].
const PROGRAMS: [&str; 2] = ["containerd-shim-runc-v2", "containerd-shim-stasis-v2"];
/// In turns; the median of three is not that of a moment when the machine was busy.
const ORDER: [usize; 6] = [0, 1, 1, 0, 0, 1];

/// Returns the worse ratio: of the time that all takes, or of the memory of the shims once all
/// processes have ended. containerd is not killed, since containers of its own shim do not all
/// outlive it; that containers of ours do is a test, `tasks::load`.
pub(crate) fn shim_load(screen: &mut dyn Write) -> Result<Figure> {
    let (mut seconds, mut mebibytes) = ([vec![], vec![]], [vec![], vec![]]);
    for shim in ORDER {
        let name = shims::RUNTIMES[shim];
        let outcome = carry_out(shim).context(name)?;
        writeln!(screen, "{name}: {outcome:?}")?;
        let nothing_lost = outcome.faults.is_empty();
        ensure!(shim == 0 || nothing_lost, "{name} lost something");
        let took = outcome.start + outcome.execs + outcome.end;
        seconds[shim].push(took.as_secs_f64());
        mebibytes[shim].push(outcome.after.resident as f64 / 1024.0);
    }
    let [go, stasis] = seconds.map(Sample::new);
    let time = stasis.median() / go.median();
    let parts = format!("go {go} s, stasis {stasis} s, ratio {time:.3}, ");
    let [go, stasis] = mebibytes.map(Sample::new);
    let memory = stasis.median() / go.median();
    let parts = format!("{parts}go {go} MiB, stasis {stasis} MiB, ratio {memory:.3}, the worse ");
    Ok(Figure::of(parts, time.max(memory), Aim::AtMost(1.05)))
}

fn carry_out(shim: usize) -> Result<Outcome> {
    let stasis = shims::stasis_host()?;
    let containerd = stasis.containerd()?;
    let runtime = (shims::RUNTIMES[shim], PROGRAMS[shim]);
    let size = Size {
        fate: Fate::Spared,
        ..Size::FULL
    };
    size.carry_out(&stasis, runtime, containerd)
}
