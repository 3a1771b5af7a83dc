//! The soak: `soak [MINUTES [SECONDS]]`. Four containers with the GPU are checkpointed, restored,
//! suspended and resumed at the same time, again and again, SECONDS apart, and nothing
//! grows.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stasis_integration::check::ended::ended;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::containerd::Containerd;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::container::gpu_task::into;
use stasis_integration::host::HostKind;
use stasis_integration::host::installed::{CUDA_CHECKPOINT, StasisHost};

const MINUTES: u64 = 120;
/// Rounds between two measurements.
const ROUNDS: u64 = 20;
const SERVED: &str = "served";
const SERVED_PORT: u16 = 10003;
/// The programs that measure the host, which are not counted.
const LOOKING: [&str; 3] = ["bash", "sleep", "catatonit"];
const DIRECTORIES: [&str; 4] = [
    "/run/stasis",
    "/run/bundles",
    "/sys/fs/cgroup",
    "/var/lib/stasis",
];
/// Memory and mappings may grow by this part in all, by caches of allocators; counts may not grow
/// at all.
const SLACK_PERCENT: u64 = 25;
const SLACK: u64 = 4096;

/// A figure by its name; those with a unit may vary a little.
type Figures = BTreeMap<String, u64>;

fn main() -> ExitCode {
    ended(soak())
}

fn soak() -> Result<()> {
    let number = |at| std::env::args().nth(at).map(|number| number.parse::<u64>());
    let minutes = number(1).transpose().context("MINUTES")?;
    let apart = number(2).transpose().context("SECONDS")?;
    let long = Duration::from_secs(60 * minutes.unwrap_or(MINUTES));
    let apart = Duration::from_secs(apart.unwrap_or(0));
    let stasis = StasisHost::of(HostKind::sid_v2()?)?.through_the_shim()?;
    let _containerd = stasis.containerd()?;
    let client = Containerd::connect(&stasis.host)?;
    let ports = ["10000", "10001", "10002"];
    let bundles: Vec<Bundle<'_>> = ports
        .iter()
        .map(|port| {
            Bundle::make(
                &stasis,
                &format!("job{port}"),
                &["/bin/memcheck", "8", port],
            )
        })
        .collect::<Result<_>>()?;
    for bundle in &bundles {
        bundle.run()?;
    }
    let served = ["/bin/memcheck", "8", "10003"];
    stasis.start_gpu_task(&client, SERVED, &[], &served)?;
    for port in [10000, 10001, 10002, SERVED_PORT] {
        stasis.ask_until_up(port)?;
    }
    let mut screen = std::io::stdout().lock();
    let (start, mut first, mut rounds) = (Instant::now(), None::<Figures>, 0);
    loop {
        for _ in 0..ROUNDS {
            rounds += 1;
            round(&stasis, &bundles, &client, rounds).with_context(|| format!("round {rounds}"))?;
            thread::sleep(apart);
        }
        // The first rounds make directories, logs and caches that stay.
        let first = match &first {
            Some(first) => first,
            None => first.insert(figures(&stasis)?),
        };
        // A keeper may be about to end, and the kernel to release a cgroup.
        let mut now = Figures::new();
        wait_until_clear(|| {
            now = figures(&stasis)?;
            Ok(what_grew(first, &now))
        })
        .with_context(|| listed(&stasis))?;
        let minutes = start.elapsed().as_secs() / 60;
        writeln!(screen, "{minutes} min, {} operations: {now:?}", rounds * 7)?;
        if start.elapsed() >= long {
            return Ok(());
        }
    }
}

/// Runs one or two operations on each container at once; all of their memory is right then.
fn round(
    stasis: &StasisHost,
    bundles: &[Bundle<'_>],
    client: &Containerd,
    round: u64,
) -> Result<()> {
    thread::scope(|scope| {
        let each = bundles.iter().zip(0..).map(|(bundle, at)| {
            let work = move || operate(stasis, bundle, (round + at) % 4);
            scope.spawn(work)
        });
        let all: Vec<_> = each.collect();
        client.checkpoint(SERVED, &into("/images/served"))?;
        for one in all {
            one.join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the soak panicked")))?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    fs::remove_dir_all(stasis.path("/images/served"))?;
    for port in 10000..=SERVED_PORT {
        let answer = stasis.ask(port)?;
        let expected = format!("ok {round}");
        ensure!(
            answer.as_ref() == Some(&expected),
            "port {port}: {answer:?}"
        );
    }
    Ok(())
}

fn operate(stasis: &StasisHost, bundle: &Bundle<'_>, kind: u64) -> Result<()> {
    let image = format!("image{kind}");
    match kind {
        0 => bundle.checkpoint(&image, &["--leave-running"]),
        1 => {
            bundle.checkpoint(&image, &[])?;
            bundle.restore(&image)
        }
        // As containerd's clients and podman do.
        2 => {
            bundle.pause()?;
            bundle.checkpoint(&image, &["--leave-running"])?;
            bundle.resume()
        }
        _ => {
            let container = ["--container", &bundle.id, "--root", ROOT];
            let toggle = [&[CUDA_CHECKPOINT, "--toggle"], &container[..]].concat();
            stasis.run(&toggle)?;
            stasis.run(&toggle).map(drop)
        }
    }
}

fn figures(stasis: &StasisHost) -> Result<Figures> {
    let mut figures = Figures::new();
    for entry in fs::read_dir(stasis.path("/proc"))? {
        let directory = entry?.path();
        let name = directory.file_name().unwrap_or_default();
        if name.to_string_lossy().parse::<u32>().is_ok() {
            add_process(&mut figures, &directory);
        }
    }
    for directory in DIRECTORIES {
        let entries = entries_below(&stasis.path(directory)).len();
        figures.insert(format!("entries below {directory}"), entries as u64);
    }
    let mounts = stasis.run_for_text(&["cat", "/proc/self/mountinfo"])?;
    figures.insert("mounts".to_owned(), mounts.lines().count() as u64);
    Ok(figures)
}

/// Adds one process; a process that ends meanwhile does not count.
fn add_process(figures: &mut Figures, directory: &Path) -> Option<()> {
    let name = fs::read_to_string(directory.join("comm")).ok()?;
    let name = name.trim();
    if LOOKING.contains(&name) {
        return Some(());
    }
    let count = |below: &str| Some(fs::read_dir(directory.join(below)).ok()?.count() as u64);
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let resident = resident.trim().trim_end_matches(" kB").parse().ok()?;
    let maps = fs::read_to_string(directory.join("maps")).ok()?;
    for (what, value) in [
        ("processes", 1),
        ("descriptors", count("fd")?),
        ("mappings, about", maps.lines().count() as u64),
        ("resident KiB, about", resident),
    ] {
        *figures.entry(format!("{name}: {what}")).or_default() += value;
    }
    Some(())
}

/// Lists all that is in the directories that are counted.
fn listed(stasis: &StasisHost) -> String {
    let each = DIRECTORIES.map(|directory| entries_below(&stasis.path(directory)));
    format!("{:?}", each.concat())
}

/// Lists what a directory has. Of cgroups only the directories: a controller that the machine hands
/// on meanwhile brings files of its own into each.
fn entries_below(directory: &Path) -> Vec<PathBuf> {
    let are_cgroups = directory
        .components()
        .any(|part| part.as_os_str() == "cgroup");
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory {
            found.extend(entries_below(&entry.path()));
        }
        if is_directory || !are_cgroups {
            found.push(entry.path());
        }
    }
    found
}

fn what_grew(first: &Figures, now: &Figures) -> Option<String> {
    let grew = now.iter().find_map(|(name, value)| {
        let before = first.get(name).copied().unwrap_or(0);
        let most = match name.ends_with("about") {
            true => before + before * SLACK_PERCENT / 100 + SLACK,
            false => before,
        };
        (*value > most).then_some((name, before, value))
    });
    grew.map(|(name, before, value)| format!("{name}: {before} at the beginning, {value} now"))
}
