//! CRIU killed by somebody else, at any time.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stasis_integration::deadline::until_none;
use stasis_integration::descendant::descendant;
use stasis_integration::message::says;
use stasis_integration::victim::outside;

use crate::RUNS_ON;
use crate::subject::Subject;

impl Subject<'_> {
    /// While memory is taken. Later CRIU is inside of the processes, which do not survive that, with and without a plugin.
    pub(crate) fn dumps_are_killed(&self, random: &mut Rng) -> Result<()> {
        let took = self.copied_in("checkpoint")?;
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut killed = 0;
        while killed < 8 {
            ensure!(
                Instant::now() < deadline,
                "CRIU was hit {killed} times only"
            );
            let before = self.lab.inventory()?;
            let options = [&[][..], &["--leave-running"]][random.usize(..2)];
            let task = self.holder.bundle.pid()?;
            let dump = self.holder.bundle.begin_checkpoint("killed", options)?;
            let at = Duration::from_secs_f64(took * random.f64());
            let hit = self.kill_while_memory_is_taken(task, at)?;
            let output = dump.wait_with_output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            if hit {
                killed += 1;
                ensure!(!output.status.success(), "killed, and it succeeded");
                says(&said, &[RUNS_ON]);
                self.holder.nothing_left_of_dump("killed")?;
                self.holder.goes_on().context(format!("killed at {at:?}"))?;
                self.is_as(&before)?;
            } else {
                ensure!(output.status.success(), "{said}");
                if options.is_empty() {
                    self.holder.bundle.restore("killed")?;
                }
                self.holder.goes_on()?;
            }
        }
        Ok(())
    }

    /// Whether it was still the time for it.
    fn kill_while_memory_is_taken(&self, task: i64, at: Duration) -> Result<bool> {
        self.wait_for("memory-progress")?;
        let status = fs::read_to_string(self.lab.host.path(format!("/proc/{task}/status")))?;
        let tracer = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        let tracer = tracer.context("no TracerPid")?.trim().parse()?;
        // It may have let go already.
        let Ok(criu) = outside(self.lab, tracer) else {
            return Ok(false);
        };
        sleep(at);
        // What has ended meanwhile is not stopped, and need not be.
        let _ = kill(criu, Signal::SIGSTOP);
        until_none(|| Ok(runs(criu).then(|| "it is not stopped".to_owned())))?;
        let over = self.record().join("memory-report.json").exists();
        let signal = if over {
            Signal::SIGCONT
        } else {
            Signal::SIGKILL
        };
        Ok(kill(criu, signal).is_ok() && !over)
    }

    /// While memory is given back. Before that CRIU leaves children that runc waits for in vain, with and without a plugin.
    pub(crate) fn restores_are_killed(&self, random: &mut Rng) -> Result<()> {
        self.holder.bundle.checkpoint("good", &[])?;
        let next = self.holder.next();
        let before = self.lab.inventory()?;
        self.holder.bundle.restore("good")?;
        self.holder.goes_on()?;
        self.holder.end()?;
        let took = self.copied_in("restore")?;
        let mut killed = 0;
        for _ in 0..10 {
            let mut restore = self.holder.bundle.begin_restore("good")?;
            self.wait_for("memory-progress")?;
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

    /// Waits for a file of the operation that is under way.
    fn wait_for(&self, file: &str) -> Result<()> {
        until_none(|| Ok((!self.record().join(file).exists()).then(|| format!("no {file}"))))
    }

    fn record(&self) -> PathBuf {
        let records = "/run/stasis/containers/%run%bundles";
        self.lab.host.path(records).join(&self.holder.bundle.id)
    }

    fn copied_in(&self, operation: &str) -> Result<f64> {
        let line = self.lab.operation(operation)?;
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
