//! The time for which a checkpoint stops its container, in `operations.log`.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::StasisHost;
use stasis_integration::on_hosts;

on_hosts!(is_logged: sid, crun_on_trixie_v2);

fn is_logged(kind: HostKind) -> Result<()> {
    let stasis = StasisHost::with_containerd(kind)?;
    let counter = Bundle::make(&stasis, "counter", &["/bin/counter", "10000"])?;
    counter.comes_up(10000, "101")?;
    let start = Instant::now();
    counter.checkpoint("image", &["--leave-running"])?;
    let whole = start.elapsed().as_secs_f64();
    let line = stasis.operation("checkpoint")?;
    let while_locked = ["gpu checkpoint", "dump", "gpu restore"];
    let phases: f64 = while_locked.iter().map(|name| phase(&line, name)).sum();
    let (locked, frozen) = (seconds(&line, "locked")?, seconds(&line, "frozen")?);
    assert!(phases <= locked && locked <= whole, "{line} in {whole} s");
    assert!(frozen > 0.0 && frozen <= phase(&line, "dump"), "{line}");

    // Without a dump, and locked only for the time of the attempt.
    stasis.inject("checkpoint counter error:801")?;
    counter.checkpoint_fails("image", &[])?;
    stasis.inject("")?;
    let line = stasis.operation("checkpoint")?;
    assert!(seconds(&line, "locked")? > 0.0, "{line}");
    assert_eq!(line["frozen_seconds"], Value::Null, "{line}");
    counter.delete()
}

fn seconds(line: &Value, what: &str) -> Result<f64> {
    let found = line[format!("{what}_seconds")].as_f64();
    found.with_context(|| format!("no {what}_seconds in {line}"))
}

fn phase(line: &Value, name: &str) -> f64 {
    let phases = line["phases"].as_array().into_iter().flatten();
    let named = phases.filter(|phase| phase["name"] == name);
    named.filter_map(|phase| phase["seconds"].as_f64()).sum()
}
