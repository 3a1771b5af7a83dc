//! CRIU killed by somebody else, at any time.

use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::process_tree::{descendant, has_ended};
use stasis_integration::check::wait::wait_until_clear;

use super::RUNS_ON;
use super::container::FaultyContainer;

/// How often CRIU has to be hit while memory is taken; the time for it may be over when it is meant
/// to be.
const KILLS: u32 = 8;
/// How often a restore is to be hit at least and at most: the time for it may be over as well.
const RESTORES: RangeInclusive<u32> = 10..=50;

impl FaultyContainer<'_> {
    /// While memory is taken. Later CRIU is inside of the processes, which do not survive that,
    /// with and without a plugin.
    pub(crate) fn dumps_are_killed(&self, random: &mut Rng) -> Result<()> {
        let mut took = self.copied_in("checkpoint")?;
        let mut killed = 0;
        for turn in 0.. {
            if killed == KILLS {
                break;
            }
            ensure!(turn < 10 * KILLS, "CRIU was hit {killed} times only");
            // An image that is there would stay.
            let image = self.holder.bundle.image_path("killed");
            if image.exists() {
                fs::remove_dir_all(image)?;
            }
            let before = self.stasis.inventory()?;
            let options = [&[][..], &["--leave-running"]][random.usize(..2)];
            let task = self.holder.bundle.pid()?;
            let dump = self.holder.bundle.begin_checkpoint("killed", options)?;
            let at = Duration::from_secs_f64(took * random.f64());
            let hit = self.kill_while_memory_is_taken(&dump, task, at)?;
            let output = dump.wait_with_output()?;
            let stderr = String::from_utf8_lossy(&output.stderr);
            if hit {
                killed += 1;
                ensure!(!output.status.success(), "killed, and it succeeded");
                assert_contains(&stderr, &[RUNS_ON]);
                self.holder.nothing_left_of_dump("killed")?;
                self.holder.goes_on().context(format!("killed at {at:?}"))?;
                self.is_as(&before)?;
            } else {
                ensure!(output.status.success(), "{stderr}");
                // The machine may have become faster.
                took = self.copied_in("checkpoint")?;
                if options.is_empty() {
                    self.holder.bundle.restore("killed")?;
                }
                self.holder.goes_on()?;
            }
        }
        Ok(())
    }

    /// Whether it was still the time for it.
    fn kill_while_memory_is_taken(&self, dump: &Child, task: i64, at: Duration) -> Result<bool> {
        let status = self.stasis.host.path(format!("/proc/{task}/status"));
        if !self.has_progress(dump)? {
            return Ok(false);
        }
        // The dump may have ended it already.
        let Ok(status) = fs::read_to_string(status) else {
            return Ok(false);
        };
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        let tracer = tracer.context("no TracerPid")?.trim();
        // It may have let go already.
        let Ok(criu) = self.stasis.host.outside(tracer) else {
            return Ok(false);
        };
        sleep(at);
        // What has ended meanwhile is not stopped, and need not be.
        let _ = kill(criu, Signal::SIGSTOP);
        wait_until_clear(|| Ok(runs(criu).then(|| "it is not stopped".to_owned())))?;
        // A task that makes a call for the plugin has the plugin's registers, and is lost with it.
        let over =
            self.record().join("memory-report.json").exists() || self.is_borrowed_or_ended(task);
        let signal = if over {
            Signal::SIGCONT
        } else {
            Signal::SIGKILL
        };
        Ok(kill(criu, signal).is_ok() && !over)
    }

    /// Whether a stopped CRIU has the task make one of the short calls that make and reap its
    /// helper; or is through with it, and the task has ended.
    fn is_borrowed_or_ended(&self, task: i64) -> bool {
        let read = |file: &str| {
            let path = self.stasis.host.path(format!("/proc/{task}/{file}"));
            fs::read_to_string(path).unwrap_or_default()
        };
        let (stat, call) = (read("stat"), read("syscall"));
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        let number = call
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok());
        state != Some('t')
            || [libc::SYS_clone, libc::SYS_wait4]
                .map(Some)
                .contains(&number)
    }

    /// While memory is given back. Before that CRIU leaves children that runc waits for without
    /// end, with and without a plugin.
    pub(crate) fn restores_are_killed(&self, random: &mut Rng) -> Result<()> {
        self.holder.bundle.checkpoint("good", &[])?;
        let next = self.holder.next();
        let before = self.stasis.inventory()?;
        self.holder.bundle.restore("good")?;
        self.holder.goes_on()?;
        self.holder.end()?;
        let mut took = self.copied_in("restore")?;
        let mut killed = 0;
        for turn in 0..*RESTORES.end() {
            if killed > 0 && turn >= *RESTORES.start() {
                break;
            }
            let mut restore = self.holder.bundle.begin_restore("good")?;
            self.has_progress(&restore)?;
            let criu = descendant(&restore, "criu")?;
            let at = Duration::from_secs_f64(took * random.f64());
            sleep(at);
            if let Some(criu) = criu {
                // It may have ended.
                let _ = kill(criu, Signal::SIGKILL);
            }
            if restore.wait()?.success() {
                self.holder.is_back_at(next);
                self.holder.goes_on()?;
                self.holder.end()?;
                took = self.copied_in("restore")?;
                continue;
            }
            killed += 1;
            let state = self.holder.bundle.status()?;
            ensure!(state.is_empty(), "killed after {at:?}: {state}");
            self.is_gone(&before)
                .with_context(|| format!("killed after {at:?}"))?;
        }
        ensure!(killed > 0, "CRIU was never hit");
        self.holder.is_back_at(next);
        self.holder.bundle.restore("good")?;
        self.holder.goes_on()
    }

    /// Waits until an operation is at work on memory; false if it has ended before that was seen.
    fn has_progress(&self, operation: &Child) -> Result<bool> {
        let progress = self.record().join("memory-progress");
        let mut is_there = false;
        wait_until_clear(|| {
            is_there = progress.exists();
            let waits = !is_there && !has_ended(operation);
            Ok(waits.then(|| "no memory-progress".to_owned()))
        })?;
        Ok(is_there)
    }

    fn record(&self) -> PathBuf {
        self.holder.bundle.record()
    }

    fn copied_in(&self, operation: &str) -> Result<f64> {
        let line = self.stasis.operation(operation)?;
        let seconds = line["bulk_memory"]["copy_seconds"].as_f64();
        seconds.with_context(|| format!("no copy_seconds: {line}"))
    }
}

/// Neither stopped nor ended.
fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('T' | 'Z' | 'X'))
}
