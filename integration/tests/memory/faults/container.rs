//! A container, and faults that are ordered.

use anyhow::{Context, Result, ensure};
use stasis_integration::check::assert_text::assert_contains;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::memory_container::{Inventory, MemoryContainer, difference};
use stasis_integration::host::installed::StasisHost;
use stasis_memory_store::Index;

use super::RUNS_ON;

const KINDS: [&str; 3] = ["error", "panic", "kill"];

/// A container on which everything fails sooner or later.
pub(crate) struct FaultyContainer<'l> {
    pub(crate) stasis: &'l StasisHost,
    pub(crate) holder: MemoryContainer<'l>,
    /// Of its image.
    chunks: usize,
}

impl<'l> FaultyContainer<'l> {
    pub(crate) fn start(
        stasis: &'l StasisHost,
        id: &str,
        command: &str,
        port: u16,
    ) -> Result<Self> {
        let holder = MemoryContainer::start(stasis, id, command, port)?;
        holder.bundle.checkpoint("good", &["--leave-running"])?;
        holder.goes_on()?;
        let index = Index::read(&holder.bundle.image_path("good"))?.context("no index")?;
        let chunks = index.areas().map(|area| area.chunks.len()).sum();
        // More than are emptied in one go.
        ensure!(chunks > 16, "only {chunks} chunks");
        Ok(Self {
            stasis,
            holder,
            chunks,
        })
    }

    pub(crate) fn dumps_fail(&self) -> Result<()> {
        let (middle, last) = (self.chunks / 2, self.chunks);
        let copies = [1, middle, last].map(|number| format!("copy:{number}"));
        let others = ["take:1", "empty:1", "empty:2", "finish:1"].map(str::to_owned);
        let mut options = [&[][..], &["--leave-running"]].into_iter().cycle();
        for kind in KINDS {
            for point in copies.iter().chain(&others) {
                let fault = format!("{point}:{kind}");
                let options = options.next().unwrap_or_default();
                self.dump_fails(&fault, options).context(fault)?;
            }
        }
        // Those that pass these points in a dump that is otherwise well.
        self.dump_fails("end:1:kill", &[])?;
        self.dump_fails("end:1:kill", &["--leave-running"])?;
        for number in [1, middle, last] {
            self.dump_fails(&format!("fill:{number}:kill"), &["--leave-running"])?;
        }
        self.dump_fails("finish:1:error,fill:1:error", &[])
    }

    fn dump_fails(&self, fault: &str, options: &[&str]) -> Result<()> {
        let before = self.stasis.inventory()?;
        self.holder.inject(fault)?;
        let message = self.holder.bundle.checkpoint_fails("failed", options)?;
        self.holder.inject("")?;
        assert_contains(&message, &[RUNS_ON, "its log is kept"]);
        match fault.rsplit(':').next() {
            Some("error") => assert_contains(&message, &["bulk memory: a fault for a test"]),
            Some("panic") => assert_contains(&message, &["panicked, which is a fault in stasis"]),
            _ => {}
        }
        self.holder.nothing_left_of_dump("failed")?;
        self.holder.goes_on()?;
        self.is_as(&before)?;
        self.holder
            .bundle
            .checkpoint("good", &["--leave-running"])?;
        self.holder.goes_on()
    }

    pub(crate) fn is_as(&self, before: &Inventory) -> Result<()> {
        wait_until_clear(|| {
            let now = self.stasis.inventory()?;
            Ok(difference(before, &now))
        })
    }

    /// CRIU does not ask how its end went: the image is complete, and a container that goes on gets
    /// its memory all the same.
    pub(crate) fn dumps_succeed(&self) -> Result<()> {
        let mut points = vec!["end:1".to_owned()];
        points.extend([1, self.chunks].map(|number| format!("fill:{number}")));
        for kind in ["error", "panic"] {
            for point in &points {
                self.holder.inject(&format!("{point}:{kind}"))?;
                let options = ["--leave-running"];
                self.holder.bundle.checkpoint("good", &options)?;
                let missing = self.holder.missing()?;
                ensure!(missing.is_empty(), "{point}: {missing:?} lack memory");
                let notes = self.stasis.operation("checkpoint")?["notes"].to_string();
                assert_contains(&notes, &["bulk memory, after the dump"]);
                self.holder.goes_on()?;
                self.stasis.no_criu()?;
            }
            self.holder.inject(&format!("end:1:{kind}"))?;
            self.holder.bundle.checkpoint("good", &[])?;
            self.stasis.no_criu()?;
            self.holder.inject("")?;
            self.holder.bundle.restore("good")?;
            self.holder.goes_on()?;
        }
        Ok(())
    }

    pub(crate) fn restores_fail(&self) -> Result<()> {
        self.holder.bundle.checkpoint("good", &[])?;
        let next = self.holder.next();
        let mut points = vec!["giveback:1".to_owned()];
        let numbers = [1, self.chunks / 2, self.chunks];
        points.extend(numbers.map(|number| format!("fill:{number}")));
        let before = self.stasis.inventory()?;
        for kind in KINDS {
            for point in &points {
                let fault = format!("{point}:{kind}");
                self.restore_fails(&fault, &before)
                    .with_context(|| fault.clone())?;
                self.holder.is_back_at(next);
                self.holder.bundle.restore("good")?;
                self.holder.goes_on()?;
                self.holder.end()?;
            }
        }
        self.holder.is_back_at(next);
        self.holder.bundle.restore("good")?;
        self.holder.goes_on()
    }

    fn restore_fails(&self, fault: &str, before: &Inventory) -> Result<()> {
        self.holder.inject(fault)?;
        let message = self.holder.bundle.restore_fails("good")?;
        self.holder.inject("")?;
        assert_contains(&message, &["what had been restored was ended"]);
        match fault.rsplit(':').next() {
            Some("error") => assert_contains(&message, &["bulk memory: a fault for a test"]),
            Some("panic") => assert_contains(&message, &["panicked, which is a fault in stasis"]),
            _ => {}
        }
        self.is_gone(before)
    }

    pub(crate) fn is_gone(&self, before: &Inventory) -> Result<()> {
        // A process that was killed ends when it is scheduled.
        wait_until_clear(|| {
            let left = self.holder.processes()?;
            Ok((!left.is_empty()).then(|| format!("{left:?} are left")))
        })?;
        self.stasis.no_criu()?;
        if self.stasis.low_level == "crun" {
            // It leaves its cgroup, with nothing in it, whatever fails in CRIU.
            let cgroup = format!("/sys/fs/cgroup/{}", self.holder.bundle.id);
            self.stasis.command("rmdir").arg(cgroup).output()?;
        }
        self.is_as(before)
    }
}
