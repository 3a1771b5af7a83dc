//! The memory of a shim while its container runs.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use stasis_integration::host::installed::StasisHost;

use crate::figure::{Figure, Sample};
use crate::shims;
use crate::tasks::Api;

const CONTAINERS: usize = 3;
/// A shim that has just started a container still has work to do, and memory to give back.
const IDLE: Duration = Duration::from_secs(2);

/// File of the process, line, name. The last is the one with the aim.
const AMOUNTS: [(&str, &str, &str); 3] = [
    (
        "smaps_rollup",
        "Pss:",
        "proportional (what several shims share counts once)",
    ),
    ("status", "RssAnon:", "resident, anonymous"),
    ("status", "VmRSS:", "resident"),
];

/// The resident memory of idle shims, each with one running container, all there at the same time.
pub(crate) fn shim_memory(screen: &mut dyn Write) -> Result<Figure> {
    let stasis = shims::stasis_host()?;
    let _containerd = stasis.containerd()?;
    let api = Api::connect(&stasis)?;
    let tasks = shims::in_turns(0, CONTAINERS, |runtime, id| {
        api.start(runtime, id, &["/bin/pause"])
    })?;
    std::thread::sleep(IDLE);
    let mut shims = [Vec::new(), Vec::new()];
    for (shims, tasks) in shims.iter_mut().zip(&tasks) {
        for task in tasks {
            shims.push(amount(&stasis, task.pid, "status", "PPid:")?);
        }
    }
    let mut both = Vec::new();
    for (file, line, name) in AMOUNTS {
        both.clear();
        for shims in &shims {
            let amounts = shims.iter().map(|shim| {
                Ok(
                    amount(&stasis, *shim, file, line).context("asking a shim for its memory")?
                        as f64
                        / 1024.0,
                )
            });
            both.push(Sample::new(amounts.collect::<Result<_>>()?));
        }
        if let [go, stasis] = both.as_slice() {
            writeln!(screen, "{name}: go {go} MiB, stasis {stasis} MiB")?;
        }
    }
    tasks
        .into_iter()
        .flatten()
        .try_for_each(|task| task.remove())?;
    Ok(Figure::ratio(&both[0], &both[1], "MiB", 0.5))
}

/// A number from a process's file in the host's `/proc`.
fn amount(stasis: &StasisHost, pid: u32, file: &str, line: &str) -> Result<u32> {
    let path = stasis.path(format!("/proc/{pid}/{file}"));
    let text = std::fs::read_to_string(&path)?;
    let found = text.lines().find_map(|text| text.strip_prefix(line));
    let number = found.and_then(|rest| rest.split_whitespace().next());
    let number = number.with_context(|| format!("{file} of {pid} has no {line}"))?;
    Ok(number.parse()?)
}
