//! The time of the checkpoint engine itself, without the low-level runtime and the driver.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::host::{Cgroups, Suite};

use crate::figure::{Figure, Sample};

const ROUNDS: usize = 60;

/// A low-level runtime that does nothing but leave the file that marks a complete image.
const IDLE_RUNC: &str = r#"#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = --image-path ]; then echo > "$2/inventory.img"; fi
    shift
done
"#;

/// The engine's own time for a container of 100 processes without CUDA, in ms: a checkpoint by
/// [`IDLE_RUNC`].
pub(crate) fn of_100_processes(screen: &mut dyn Write) -> Result<Figure> {
    let stasis = StasisHost::start(Suite::Sid, Cgroups::V2, "runc")?;
    let _containerd = stasis.containerd()?;
    let script = "for i in $(seq 99); do /bin/pause & done; exec /bin/pause";
    let hundred = Bundle::make(&stasis, "hundred", &["/bin/sh", "-c", script])?;
    hundred.run()?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    let count = stasis.run_for_text(&[
        "bash",
        "-c",
        "cat /sys/fs/cgroup/hundred/cgroup.procs | wc -l",
    ])?;
    ensure!(
        count == "100",
        "the container for engine-100-ms has {count} processes"
    );
    let write =
        r#"printf %s "$1" > /usr/local/bin/idle-runc && chmod 755 /usr/local/bin/idle-runc"#;
    stasis.run(&["sh", "-c", write, "write", IDLE_RUNC])?;
    stasis.set("/usr/local/bin/idle-runc", "")?;
    let script = r#"
for round in $(seq "$1"); do
    start=$EPOCHREALTIME
    "$2" --root /run/bundles checkpoint --image-path /images/hundred hundred || exit 1
    middle=$EPOCHREALTIME
    /usr/local/bin/idle-runc
    end=$EPOCHREALTIME
    echo $(( 2 * ${middle/./} - ${start/./} - ${end/./} ))
done"#;
    stasis.run(&["mkdir", "-p", "/images/hundred"])?;
    let rounds = ROUNDS.to_string();
    let text = stasis.run_for_text(&["bash", "-c", script, "rounds", &rounds, RUNTIME])?;
    let times = text.lines().map(|line| Ok(line.parse::<f64>()? / 1000.0));
    let engine = Sample::new(times.collect::<Result<_>>()?);
    writeln!(
        screen,
        "checkpoint of {count} processes without CUDA: {engine} ms in the engine"
    )?;
    Ok(Figure::value(engine.median(), 30.0))
}

/// The GPU checkpoint of eight processes at the same time over eight times that of one.
pub(crate) fn eight_processes(screen: &mut dyn Write) -> Result<Figure> {
    let stasis = StasisHost::start(Suite::Sid, Cgroups::V2, "runc")?;
    let _containerd = stasis.containerd()?;
    stasis.inject("lock * slow:20\ncheckpoint * slow:200")?;
    let one = gpu_phases(&stasis, "one", 1)?;
    let eight = gpu_phases(&stasis, "eight", 8)?;
    writeln!(
        screen,
        "lock and gpu checkpoint: one process {one:.3} s, eight {eight:.3} s"
    )?;
    Ok(Figure::value(eight / (8.0 * one), 0.25))
}

fn gpu_phases(stasis: &StasisHost, id: &str, count: u16) -> Result<f64> {
    let starts: String = (1..count)
        .map(|index| format!("/bin/counter {} & ", 11000 + index))
        .collect();
    let script = format!("{starts} exec /bin/counter 11000");
    let bundle = Bundle::make(stasis, id, &["/bin/sh", "-c", &script])?;
    bundle.run()?;
    for index in 0..count {
        stasis.ask_until_up(11000 + index)?;
    }
    let start = Instant::now();
    bundle
        .checkpoint("bench", &[])
        .with_context(|| format!("after {:?}", start.elapsed()))?;
    let phases = stasis.operation("checkpoint")?;
    let seconds = |name: &str| {
        let phases = phases["phases"].as_array().into_iter().flatten();
        phases
            .filter(|phase| phase["name"] == name)
            .filter_map(|phase| phase["seconds"].as_f64())
            .sum::<f64>()
    };
    Ok(seconds("lock") + seconds("gpu checkpoint"))
}
