//! A container that has to survive whatever is done to it, and what is known of it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use stasis::error::kind;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::container::bundle::Bundle;
use stasis_integration::container::failure::Failure;
use stasis_integration::host::installed::StasisHost;

use crate::fault::Fault;
use crate::verdict::{End, State};
use crate::workload::{Reading, Workload};

/// The name of all containers; each has the test host to itself.
const ID: &str = "subject";
const PORT: u16 = 10000;

/// What becomes of the container after a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    GoesOn,
    Ends,
}

/// A container, and a second host where its images have to restore, too.
pub(crate) struct TestedContainer<'l> {
    stasis: &'l StasisHost,
    elsewhere: &'l StasisHost,
    workload: Workload,
    here: Bundle<'l>,
    there: Bundle<'l>,
    last: Reading,
    images: u32,
}

impl<'l> TestedContainer<'l> {
    pub(crate) fn start(
        stasis: &'l StasisHost,
        elsewhere: &'l StasisHost,
        workload: Workload,
    ) -> Result<Self> {
        let here = Bundle::make(stasis, ID, workload.command())?;
        let there = Bundle::make(elsewhere, ID, workload.command())?;
        here.run()?;
        let last = workload.read(&stasis.ask_until_up(PORT)?)?;
        let images = 0;
        Ok(Self {
            stasis,
            elsewhere,
            workload,
            here,
            there,
            last,
            images,
        })
    }

    /// A checkpoint of the running or frozen container, and what its caller does afterwards.
    pub(crate) fn step(&mut self, random: &mut Rng) -> Result<()> {
        let frozen = random.bool();
        let after = [After::GoesOn, After::Ends][random.usize(..2)];
        let fault = Fault::any(random, &self.workload.tags(ID));
        eprintln!("  checkpoint, frozen: {frozen}, then {after:?}: {fault:?}");
        if frozen {
            self.verb("pause")?;
        }
        let name = format!("image{}", self.images);
        self.images += 1;
        let at_checkpoint = self.last.clone();
        let (end, mut image_is_complete) = self.checkpoint(&name, after, &fault)?;
        let mut state = end.state(&self.here.status()?, &fault)?;
        if fault.crashes() && matches!(end, End::Success) {
            // A process that ends before it is locked is no longer of the container, nor of its
            // image.
            (state, image_is_complete) = (State::Lost, false);
        }
        if state == State::Runs {
            ensure!(
                after == After::GoesOn || !matches!(end, End::Success),
                "the container runs after its last checkpoint"
            );
            let resumed = match end {
                End::Success if frozen => self.resume(random),
                // What was cut off has been undone by its keeper.
                End::Failure(_) | End::Cut if frozen => self.verb("resume").map(|()| State::Runs),
                _ => Ok(State::Runs),
            };
            state = resumed.context("resume")?;
        }
        if state == State::Runs {
            self.counts_on().context("after the checkpoint")?;
            self.nothing_is_recorded()?;
        }
        if image_is_complete {
            self.restores_elsewhere(&name, &at_checkpoint)?;
        }
        if state == State::Ended {
            ensure!(after == After::Ends, "the container has ended");
            self.here.delete()?;
            self.nothing_is_recorded()?;
            state = self.restore(&name, random)?;
        }
        if state == State::Lost {
            self.start_again()?;
        }
        self.forget_image(&name)
    }

    /// What the caller of a frozen container does when it has copied its files.
    fn resume(&mut self, random: &mut Rng) -> Result<State> {
        let fault = Fault::any(random, &self.workload.tags(ID));
        eprintln!("  resume: {fault:?}");
        fault.order(self.stasis)?;
        let operation = self.here.operation(&["resume", ID])?.spawn()?;
        let cut = fault.send_signal(self.stasis, &operation)?;
        let output = operation.wait_with_output()?;
        self.stasis.inject("")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let end = self.end(output.status.success(), cut && stderr.is_empty(), &stderr)?;
        if let End::Cut = end {
            // Either the first one was not yet that far, or there is nothing more to resume.
            let _ = self.verb("resume");
        }
        if fault.crashes() {
            return Ok(State::Lost);
        }
        match &end {
            // Refused, or not begun: it is still paused.
            End::Failure(Failure {
                state: Some(kind::State::Unharmed | kind::State::Paused),
                ..
            }) => {
                self.verb("resume")?;
                Ok(State::Runs)
            }
            _ => end.state(&self.here.status()?, &fault),
        }
    }

    fn checkpoint(&mut self, name: &str, after: After, fault: &Fault) -> Result<(End, bool)> {
        let options: &[&str] = match after {
            After::GoesOn => &["--leave-running"],
            After::Ends => &[],
        };
        fault.order(self.stasis)?;
        let operation = self.here.begin_checkpoint(name, options)?;
        let cut = fault.send_signal(self.stasis, &operation)?;
        let output = operation.wait_with_output()?;
        self.stasis.inject("")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let end = self.end(output.status.success(), cut && stderr.is_empty(), &stderr)?;
        let complete = match &end {
            End::Success => true,
            End::Failure(failure) => failure.image_complete,
            End::Cut => false,
        };
        Ok((end, complete))
    }

    fn end(&self, success: bool, cut: bool, stderr: &str) -> Result<End> {
        if success {
            ensure!(stderr.is_empty(), "it succeeded, and wrote: {stderr}");
            return Ok(End::Success);
        }
        if !cut {
            eprintln!("    {stderr}");
            let failure = self.here.failure()?;
            return Ok(End::Failure(failure.context("the log has no error")?));
        }
        self.until_programs_end()?;
        Ok(End::Cut)
    }

    /// Waits for what a killed operation had started, and for its keeper.
    fn until_programs_end(&self) -> Result<()> {
        wait_until_clear(|| {
            let mut pgrep = self.stasis.command("pgrep");
            let found = pgrep
                .args(["-x", "criu|runc|stasis-keeper"])
                .output()?
                .stdout;
            let pids = String::from_utf8_lossy(&found);
            Ok((!pids.is_empty()).then(|| format!("CRIU, runc or a keeper: {pids}")))
        })
    }

    /// Every process of the container answers, and has counted on.
    fn counts_on(&mut self) -> Result<()> {
        let answer = self.stasis.ask(PORT)?.context("no answer")?;
        self.last = self.next(&answer, &self.last)?;
        Ok(())
    }

    fn next(&self, answer: &str, before: &Reading) -> Result<Reading> {
        let now = self.workload.read(answer)?;
        let follows = self.workload.follows(&now, before);
        ensure!(follows, "{now:?} after {before:?}");
        Ok(now)
    }

    fn nothing_is_recorded(&self) -> Result<()> {
        let found = self.stasis.records()?;
        ensure!(found.is_empty(), "still recorded: {found}");
        Ok(())
    }

    /// Restores the container that has ended, after at most one restore that fails.
    fn restore(&mut self, name: &str, random: &mut Rng) -> Result<State> {
        let fault = Fault::any(random, &self.workload.tags(ID));
        eprintln!("  restore: {fault:?}");
        fault.order(self.stasis)?;
        let mut operation = self.here.begin_restore(name)?;
        let cut = fault.send_signal(self.stasis, &operation)?;
        let success = operation.wait()?.success();
        self.stasis.inject("")?;
        if !success {
            if cut {
                self.until_programs_end()?;
            }
            let message = self.here.message()?.unwrap_or_default();
            eprintln!("    {message}");
            ensure!(cut || !message.is_empty(), "a failure without a message");
            let status = self.here.status()?;
            ensure!(cut || status.is_empty(), "{status} after: {message}");
            self.here.delete().context("after a restore that failed")?;
            self.here.restore(name).context("the second restore")?;
        }
        self.counts_on().context("after the restore")?;
        self.nothing_is_recorded()?;
        Ok(State::Runs)
    }

    /// The image works on another host, and counts on from the checkpoint.
    fn restores_elsewhere(&self, name: &str, at_checkpoint: &Reading) -> Result<()> {
        let copied = Command::new("cp")
            .arg("-a")
            .args([self.here.image_path(name), self.there.image_path(name)])
            .status()?;
        ensure!(copied.success(), "the image could not be copied");
        self.there.restore(name).context("on another host")?;
        let answer = self.elsewhere.ask(PORT)?.context("no answer elsewhere")?;
        self.next(&answer, at_checkpoint).context("elsewhere")?;
        self.there.delete()?;
        self.elsewhere
            .host
            .run(&["rm", "-r", &self.there.image(name)])?;
        Ok(())
    }

    fn forget_image(&self, name: &str) -> Result<()> {
        self.stasis
            .host
            .run(&["rm", "-rf", &self.here.image(name)])?;
        Ok(())
    }

    fn verb(&self, verb: &str) -> Result<()> {
        let output = self.here.runtime(&[verb, ID]).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{verb}: {stderr}");
        Ok(())
    }

    fn start_again(&mut self) -> Result<()> {
        self.here.delete()?;
        self.nothing_is_recorded()?;
        self.here.run()?;
        self.last = self.workload.read(&self.stasis.ask_until_up(PORT)?)?;
        Ok(())
    }

    pub(crate) fn end_it(self) -> Result<()> {
        self.here.delete()?;
        self.nothing_is_recorded()?;
        for bundle in [&self.here, &self.there] {
            let stasis = if std::ptr::eq(bundle, &self.here) {
                self.stasis
            } else {
                self.elsewhere
            };
            let directory = bundle.directory();
            stasis
                .host
                .run(&["umount", &format!("{directory}/rootfs")])?;
            stasis.host.run(&["rm", "-r", &directory])?;
        }
        Ok(())
    }
}
