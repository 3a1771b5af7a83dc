//! One checkpoint and one restore, timed.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::host::installed::{OPERATIONS_LOG, RUNTIME, StasisHost};

use super::cell::{Cell, System, Tier};
use super::disk::DISK;
use super::huge_pages::HugePages;
use super::memory::{growth_during, warm};

/// Names another runtime to be measured as ours. The low-level runtime there shows how far the
/// figures can be trusted: all ratios have to be 1.
const OTHER_RUNTIME: &str = "STASIS_BENCH_RUNTIME";
/// Where bundles' containers are known; as `Bundle` has it.
const ROOT: &str = "/run/bundles";
/// A plain tmpfs.
pub(crate) const TMPFS: &str = "/bench";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);
const PORT: u16 = 12000;

/// Runs a command in the host, and makes files durable then: prints how long the first took, and
/// both, in microseconds.
const TIMED: &str = r#"
files=$1
shift
start=$EPOCHREALTIME
"$@" </dev/null >/dev/null 2>/run/stderr || { cat /run/stderr >&2; exit 1; }
end=$EPOCHREALTIME
[ -z "$files" ] || find "$files" -type f -exec sync -d {} +
durable=$EPOCHREALTIME
echo $(( ${end/./} - ${start/./} )) $(( ${durable/./} - ${start/./} ))
"#;

/// Seconds.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) dump: f64,
    /// From its beginning until it is safe on a disk.
    pub(crate) durable: Option<f64>,
    pub(crate) restore: f64,
    /// The machine's memory in use during the dump at most, over the process's.
    pub(crate) peak: f64,
    /// What stasis has logged of its phases.
    pub(crate) phases: String,
}

impl fmt::Display for Round {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "dump {:.2} s", self.dump)?;
        if let Some(durable) = self.durable {
            write!(formatter, " (durable {durable:.2} s)")?;
        }
        write!(
            formatter,
            ", restore {:.2} s, peak {:.2}",
            self.restore, self.peak
        )?;
        if !self.phases.is_empty() {
            write!(formatter, "; {}", self.phases)?;
        }
        Ok(())
    }
}

/// What takes checkpoints, in a host.
pub(crate) struct Setting<'l> {
    stasis: &'l StasisHost,
    system: System,
    runtime: String,
    images: String,
}

impl<'l> Setting<'l> {
    pub(crate) fn of(stasis: &'l StasisHost, system: System) -> Result<Self> {
        let other = std::env::var(OTHER_RUNTIME).ok();
        let mut runtime = stasis.low_level.clone();
        if let System::Stasis { tier, threads } = system {
            let tier = tier.name();
            let bulk = format!(
                "gpu_checkpoint.huge_pages = true\n[bulk_memory]\nheaps = true\nram_limit_percent = 90\ntier = \"{tier}\"\nthreads = {threads}\ndirectory = \"{DISK}/store\"\n"
            );
            stasis.set(&stasis.low_level, if other.is_some() { "" } else { &bulk })?;
            runtime = other.unwrap_or_else(|| RUNTIME.to_owned());
        }
        let images = if system.is_on_disk() { DISK } else { TMPFS };
        Ok(Self {
            stasis,
            system,
            runtime,
            images: format!("{images}/images"),
        })
    }

    /// Starts a container that holds memory, and waits until it has filled and verified it.
    pub(crate) fn start(&self, id: &str, cell: &Cell) -> Result<Bundle<'l>> {
        let (port, mib) = (PORT.to_string(), cell.mib().to_string());
        let command = ["/bin/heaps", &port, &mib, cell.contents.name(), "plain"];
        let bundle = Bundle::make(self.stasis, id, &command)?.through(&self.runtime);
        self.stasis.host.run(&[
            "mkdir",
            "-p",
            &self.images,
            &format!("{}/work", bundle.directory()),
        ])?;
        bundle.run()?;
        self.is_intact(1)?;
        Ok(bundle)
    }

    /// Has the workload verify its memory, for the so-manieth time.
    fn is_intact(&self, turn: u32) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut message = None;
        while message.is_none() {
            ensure!(Instant::now() < deadline, "the workload does not answer");
            message = self.stasis.ask(PORT)?;
            std::thread::sleep(Duration::from_millis(20));
        }
        let message = message.unwrap_or_default();
        let words: Vec<&str> = message.split(' ').collect();
        ensure!(
            words.first() == Some(&"ok") && words.get(4) == Some(&turn.to_string().as_str()),
            "memory is not as it was: {message}"
        );
        Ok(())
    }

    /// One checkpoint, after which the container may go on, and how long it took.
    pub(crate) fn checkpoint(
        &self,
        bundle: &Bundle<'_>,
        image: &str,
        options: &[&str],
    ) -> Result<[f64; 2]> {
        let image = format!("{}/{image}", self.images);
        let mut verb = vec!["checkpoint", "--image-path", &image, "--work-path", &image];
        verb.extend_from_slice(options);
        verb.push(&bundle.id);
        // CRIU leaves its files to the kernel.
        let files = if self.system.is_on_disk() { &image } else { "" };
        self.timed(files, &verb)
    }

    fn restore(&self, bundle: &Bundle<'_>, image: &str) -> Result<f64> {
        let (image, directory) = (format!("{}/{image}", self.images), bundle.directory());
        let work = format!("{directory}/work");
        let options = [
            "--image-path",
            &image,
            "--work-path",
            &work,
            "--bundle",
            &directory,
        ];
        let verb = [&["restore", "--detach"], &options[..], &[&bundle.id]].concat();
        Ok(self.timed("", &verb)?[0])
    }

    fn timed(&self, files: &str, verb: &[&str]) -> Result<[f64; 2]> {
        let mut arguments = vec!["bash", "-c", TIMED, "timed", files];
        arguments.extend([self.runtime.as_str(), "--root", ROOT]);
        arguments.extend_from_slice(verb);
        let text = self.stasis.host.run_for_text(&arguments)?;
        let (command, durable) = text.split_once(' ').context("two numbers")?;
        let seconds = |text: &str| anyhow::Ok(text.parse::<f64>()? / 1e6);
        Ok([seconds(command)?, seconds(durable)?])
    }

    /// Waits until memory of the tier ram has been written to the disk; the seconds since then.
    fn until_durable(&self, since: Instant) -> Result<Option<f64>> {
        if !self.is_written_behind() {
            return Ok(None);
        }
        let lines = || {
            let log = fs::read_to_string(self.stasis.host.path(OPERATIONS_LOG))?;
            anyhow::Ok(log.matches("\"operation\":\"durable\"").count())
        };
        // Each round leaves one, and the log is removed between rounds.
        while lines()? == 0 {
            ensure!(since.elapsed() < PATIENCE, "it does not become durable");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(since.elapsed().as_secs_f64()))
    }

    /// The phases of all operations since the last round, in seconds; none of plain runc.
    fn phases(&self) -> String {
        let log = fs::read_to_string(self.stasis.host.path(OPERATIONS_LOG)).unwrap_or_default();
        let mut parts = Vec::new();
        for line in log.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            for phase in line["phases"].as_array().into_iter().flatten() {
                let (name, seconds) = (phase["name"].as_str(), phase["seconds"].as_f64());
                let (name, seconds) = (name.unwrap_or_default(), seconds.unwrap_or_default());
                parts.push(format!("{name} {seconds:.2}"));
            }
        }
        parts.join(", ")
    }

    fn is_written_behind(&self) -> bool {
        let is_ram = matches!(
            self.system,
            System::Stasis {
                tier: Tier::Ram,
                ..
            }
        );
        is_ram && std::env::var_os(OTHER_RUNTIME).is_none()
    }

    /// Removes a container and everything that its checkpoints have left.
    pub(crate) fn end(&self, bundle: &Bundle<'_>) -> Result<()> {
        let script = "\"$1\" --root \"$2\" delete --force \"$3\" 2>/dev/null
            while umount \"$4/rootfs\" 2>/dev/null; do :; done
            rm -rf \"$4\" /bench/* /disk/* /run/stasis/memory/* /var/log/stasis/operations.log";
        let directory = bundle.directory();
        let arguments = [self.runtime.as_str(), ROOT, &bundle.id, &directory];
        self.stasis
            .host
            .run(&[&["bash", "-c", script, "end"], &arguments[..]].concat())?;
        Ok(())
    }
}

/// Measures a cell once.
pub(crate) fn round(stasis: &StasisHost, cell: &Cell, id: &str) -> Result<Round> {
    let setting = Setting::of(stasis, cell.system)?;
    let bundle = setting.start(id, cell)?;
    let measured = take_and_bring_back(&setting, &bundle, cell);
    let ended = setting.end(&bundle);
    let measured = measured?;
    ended.map(|()| measured)
}

fn take_and_bring_back(setting: &Setting<'_>, bundle: &Bundle<'_>, cell: &Cell) -> Result<Round> {
    let _huge = (cell.system == System::PlainHuge)
        .then(|| HugePages::everywhere(setting.stasis, TMPFS))
        .transpose()?;
    warm()?;
    let begun = Instant::now();
    let (times, growth) = growth_during(|| setting.checkpoint(bundle, "image", &[]))?;
    let [dump, synced] = times;
    let durable = if cell.system.is_on_disk() {
        // As it is when the machine has done something else since.
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        Some(synced)
    } else {
        setting.until_durable(begun)?
    };
    warm()?;
    let restore = setting.restore(bundle, "image")?;
    setting.is_intact(2)?;
    Ok(Round {
        dump,
        durable,
        restore,
        peak: 1.0 + growth as f64 / cell.bytes() as f64,
        phases: setting.phases(),
    })
}
