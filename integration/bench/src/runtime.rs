//! The cost of the runtime where it only hands over to the low-level runtime.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::{RUNTIME, StasisHost};
use stasis_integration::host::{Cgroups, Suite};

use crate::figure::{Figure, Sample};

const ROUNDS: usize = 60;

/// A loop inside the host, so that entering it is not measured: prints the milliseconds that each
/// program took, in turns, one pair a line.
const IN_TURNS: &str = r#"
for round in $(seq "$1"); do
    for program in "$2" "$3"; do
        start=$EPOCHREALTIME
        "$program" --root /run/bundles "${@:4}" >/dev/null || exit 1
        end=$EPOCHREALTIME
        echo $(( ${end/./} - ${start/./} ))
    done
done
"#;

/// Measures the cost of verbs that pass through beyond runc's own, in ms: the most expensive one.
pub(crate) fn passthrough_extra(screen: &mut dyn Write) -> Result<Figure> {
    let stasis = StasisHost::start(Suite::Sid, Cgroups::V2, "runc")?;
    let _containerd = stasis.containerd()?;
    let plain = Bundle::make(&stasis, "plain", &["/bin/pause"])?;
    plain.run()?;
    let state = extra(&stasis, screen, &["state", "plain"])?;
    let kill = extra(&stasis, screen, &["kill", "plain", "CONT"])?;
    plain.delete()?;
    Ok(Figure::value(state.max(kill), 3.0))
}

fn extra(stasis: &StasisHost, screen: &mut dyn Write, verb: &[&str]) -> Result<f64> {
    let rounds = ROUNDS.to_string();
    let mut arguments = vec![
        "bash",
        "-c",
        IN_TURNS,
        "turns",
        &rounds,
        RUNTIME,
        "/usr/sbin/runc",
    ];
    arguments.extend_from_slice(verb);
    let text = stasis.run_for_text(&arguments)?;
    let times: Vec<f64> = text
        .lines()
        .map(|line| Ok(line.parse::<f64>()? / 1000.0))
        .collect::<Result<_>>()?;
    let every_second =
        |first: usize| Sample::new(times[first..].iter().step_by(2).copied().collect());
    let (ours, runcs) = (every_second(0), every_second(1));
    let verb = verb.join(" ");
    writeln!(
        screen,
        "{verb}: stasis-runtime {ours} ms, runc {runcs} ms, medians of {ROUNDS}"
    )?;
    Ok(ours.median() - runcs.median())
}

/// Measures the runtime's peak resident memory at hand-over, in MB. The low-level runtime is a file
/// that cannot be executed, so the runtime ends as itself and the kernel reports its peak.
pub(crate) fn passthrough_memory(_screen: &mut dyn Write) -> Result<Figure> {
    let directory = tempfile::tempdir()?;
    let missing = directory.path().join("runc");
    std::fs::write(&missing, "not a program")?;
    std::fs::set_permissions(&missing, std::fs::Permissions::from_mode(0o755))?;
    let settings = directory.path().join("stasis.toml");
    std::fs::write(&settings, format!("runtime.path = {missing:?}\n"))?;
    std::fs::set_permissions(&settings, std::fs::Permissions::from_mode(0o644))?;
    let runtime = stasis_integration::host::c_build::programs()?.join("stasis-runtime");
    let mut command = Command::new(runtime);
    command
        .arg("--stasis-config")
        .arg(&settings)
        .args(["state", "c1"])
        .stderr(Stdio::null());
    ensure!(!command.status()?.success(), "a text file was executed");
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)?;
    Ok(Figure::value(usage.max_rss() as f64 / 1000.0, 8.0))
}
