//! The figures that matter, as ratios and differences within one run; ends with a line for each:
//! `bench NAME VALUE`.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stasis_integration::bundle::Bundle;
use stasis_integration::host::{Cgroups, Suite};
use stasis_integration::lab::{Lab, RUNTIME};

const ROUNDS: usize = 60;

fn main() -> Result<()> {
    let mut screen = std::io::stdout().lock();
    // First, since the kernel only tells the peak of all children so far.
    let memory = passthrough_memory()?;
    let lab = Lab::start(Suite::Sid, Cgroups::V2, "runc")?;
    let _containerd = lab.containerd()?;
    let extra = passthrough(&lab, &mut screen)?;
    let engine = engine_of_100(&lab, &mut screen)?;
    let ratio = eight_processes(&lab, &mut screen)?;
    writeln!(screen, "bench passthrough-extra-ms {extra:.2}")?;
    writeln!(screen, "bench passthrough-memory-mb {memory:.1}")?;
    writeln!(screen, "bench engine-100-ms {engine:.1}")?;
    writeln!(screen, "bench eight-processes {ratio:.3}")?;
    Ok(())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

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

/// What verbs that pass through cost more than runc's own, in ms: the most expensive one.
fn passthrough(lab: &Lab, screen: &mut impl Write) -> Result<f64> {
    let plain = Bundle::make(lab, "plain", &["/bin/pause"])?;
    plain.run()?;
    let state = extra(lab, screen, &["state", "plain"])?;
    let kill = extra(lab, screen, &["kill", "plain", "CONT"])?;
    plain.delete()?;
    Ok(state.max(kill))
}

fn extra(lab: &Lab, screen: &mut impl Write, verb: &[&str]) -> Result<f64> {
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
    let text = lab.host.run_for_text(&arguments)?;
    let times: Vec<Duration> = text
        .lines()
        .map(|line| Ok(Duration::from_micros(line.parse()?)))
        .collect::<Result<_>>()?;
    let every_second = |first: usize| times.iter().skip(first).step_by(2).copied().collect();
    let (ours, runcs) = (median(every_second(0)), median(every_second(1)));
    let verb = verb.join(" ");
    writeln!(
        screen,
        "{verb}: stasis-runtime {ours:.2} ms, runc {runcs:.2} ms, medians of {ROUNDS}"
    )?;
    Ok(ours - runcs)
}

/// The peak resident memory of the runtime when it hands over, in MB. The low-level runtime here is a
/// file that cannot be executed, so the runtime ends as itself and the kernel tells its peak.
fn passthrough_memory() -> Result<f64> {
    let directory = tempfile::tempdir()?;
    let missing = directory.path().join("runc");
    std::fs::write(&missing, "not a program")?;
    std::fs::set_permissions(&missing, std::fs::Permissions::from_mode(0o755))?;
    let settings = directory.path().join("stasis.toml");
    std::fs::write(&settings, format!("runtime.path = {missing:?}\n"))?;
    std::fs::set_permissions(&settings, std::fs::Permissions::from_mode(0o644))?;
    let runtime = stasis_integration::native::programs()?.join("stasis-runtime");
    let mut command = Command::new(runtime);
    command
        .arg("--stasis-config")
        .arg(&settings)
        .args(["state", "c1"])
        .stderr(Stdio::null());
    ensure!(!command.status()?.success(), "a text file was executed");
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)?;
    Ok(usage.max_rss() as f64 / 1000.0)
}

/// The engine's own time for a container of 100 processes without CUDA, in ms: a checkpoint whose
/// low-level runtime is a program that does nothing.
fn engine_of_100(lab: &Lab, screen: &mut impl Write) -> Result<f64> {
    let script = "for i in $(seq 99); do /bin/pause & done; exec /bin/pause";
    let hundred = Bundle::make(lab, "hundred", &["/bin/sh", "-c", script])?;
    hundred.run()?;
    std::thread::sleep(Duration::from_secs(1));
    let count = lab.host.run_for_text(&[
        "bash",
        "-c",
        "cat /sys/fs/cgroup/hundred/cgroup.procs | wc -l",
    ])?;
    ensure!(
        count == "100",
        "the container for engine-100-ms has {count} processes"
    );
    lab.host
        .run(&["cp", "/bin/true", "/usr/local/bin/idle-runc"])?;
    lab.set("/usr/local/bin/idle-runc", "")?;
    let script = r#"
for round in $(seq "$1"); do
    start=$EPOCHREALTIME
    "$2" --root /run/bundles checkpoint --image-path /images/hundred hundred || exit 1
    middle=$EPOCHREALTIME
    /usr/local/bin/idle-runc
    end=$EPOCHREALTIME
    echo $(( 2 * ${middle/./} - ${start/./} - ${end/./} ))
done"#;
    lab.host.run(&["mkdir", "-p", "/images/hundred"])?;
    let rounds = ROUNDS.to_string();
    let text = lab
        .host
        .run_for_text(&["bash", "-c", script, "rounds", &rounds, RUNTIME])?;
    let times = text
        .lines()
        .map(|line| Ok(Duration::from_micros(line.parse()?)));
    let engine = median(times.collect::<Result<_>>()?);
    writeln!(
        screen,
        "checkpoint of {count} processes without CUDA: {engine:.1} ms in the engine"
    )?;
    lab.set("runc", "")?;
    hundred.delete()?;
    Ok(engine)
}

/// The GPU checkpoint of eight processes at the same time over eight times that of one.
fn eight_processes(lab: &Lab, screen: &mut impl Write) -> Result<f64> {
    lab.order("lock * slow:20\ncheckpoint * slow:200")?;
    let one = gpu_phases(lab, "one", 1)?;
    let eight = gpu_phases(lab, "eight", 8)?;
    lab.order("")?;
    writeln!(
        screen,
        "lock and gpu checkpoint: one process {one:.3} s, eight {eight:.3} s"
    )?;
    Ok(eight / (8.0 * one))
}

fn gpu_phases(lab: &Lab, id: &str, count: u16) -> Result<f64> {
    let starts: String = (1..count)
        .map(|index| format!("/bin/counter {} & ", 11000 + index))
        .collect();
    let script = format!("{starts} exec /bin/counter 11000");
    let bundle = Bundle::make(lab, id, &["/bin/sh", "-c", &script])?;
    bundle.run()?;
    for index in 0..count {
        lab.ask_until_up(11000 + index)?;
    }
    let start = Instant::now();
    bundle
        .checkpoint("bench", &[])
        .with_context(|| format!("after {:?}", start.elapsed()))?;
    let phases = lab.operation("checkpoint")?;
    let seconds = |name: &str| {
        let phases = phases["phases"].as_array().into_iter().flatten();
        phases
            .filter(|phase| phase["name"] == name)
            .filter_map(|phase| phase["seconds"].as_f64())
            .sum::<f64>()
    };
    Ok(seconds("lock") + seconds("gpu checkpoint"))
}
