//! A container that has to survive whatever is done to it, and what is known of it.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use stasis_integration::bundle::Bundle;
use stasis_integration::deadline::until_none;
use stasis_integration::lab::Lab;

use crate::judgement::{End, State};
use crate::mishap::Mishap;
use crate::workload::{Reading, Workload};

/// The name of all containers; each has the lab to itself.
const ID: &str = "subject";
const PORT: u16 = 10000;

/// What becomes of the container after a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    GoesOn,
    Ends,
}

/// A container, and a second host where its images have to restore, too.
pub(crate) struct Subject<'l> {
    lab: &'l Lab,
    elsewhere: &'l Lab,
    workload: Workload,
    here: Bundle<'l>,
    there: Bundle<'l>,
    last: Reading,
    images: u32,
}

impl<'l> Subject<'l> {
    pub(crate) fn start(lab: &'l Lab, elsewhere: &'l Lab, workload: Workload) -> Result<Self> {
        let here = Bundle::make(lab, ID, workload.command())?;
        let there = Bundle::make(elsewhere, ID, workload.command())?;
        here.run()?;
        let last = workload.read(&lab.ask_until_up(PORT)?)?;
        let images = 0;
        Ok(Self {
            lab,
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
        let mishap = Mishap::any(random, &self.workload.tags(ID));
        eprintln!("  checkpoint, frozen: {frozen}, then {after:?}: {mishap:?}");
        if frozen {
            self.verb("pause")?;
        }
        let name = format!("image{}", self.images);
        self.images += 1;
        let at_checkpoint = self.last.clone();
        let (end, mut image_is_complete) = self.checkpoint(&name, after, &mishap)?;
        let mut state = end.state(&self.here.status()?, &mishap)?;
        if mishap.crashes() && matches!(end, End::Success) {
            // A process that ends before it is locked is no longer of the container, nor of its image.
            (state, image_is_complete) = (State::Lost, false);
        }
        if state == State::Runs {
            ensure!(
                after == After::GoesOn || !matches!(end, End::Success),
                "the container runs after its last checkpoint"
            );
            let resumed = match end {
                End::Success if frozen => self.resume(random),
                End::Failure(_) if frozen => self.verb("resume").map(|()| State::Runs),
                // Undoes it; that there may be nothing to resume is said.
                End::Cut => {
                    let _ = self.verb("resume");
                    Ok(State::Runs)
                }
                _ => Ok(State::Runs),
            };
            state = resumed.context("resume")?;
        }
        if state == State::Runs {
            self.is_well().context("after the checkpoint")?;
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
        let mishap = Mishap::any(random, &self.workload.tags(ID));
        eprintln!("  resume: {mishap:?}");
        self.lab.order(&mishap.order())?;
        let operation = self.here.runtime(&["resume", ID]).spawn()?;
        let cut = mishap.strike(&operation)?;
        let output = operation.wait_with_output()?;
        self.lab.order("")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let end = self.end(output.status.success(), cut && said.is_empty(), said)?;
        if let End::Cut = end {
            // Either the first one was not yet that far, or there is nothing more to resume.
            let _ = self.verb("resume");
        }
        if mishap.crashes() {
            return Ok(State::Lost);
        }
        match &end {
            End::Failure(said) if said.contains("nothing was changed") => {
                self.verb("resume")?;
                Ok(State::Runs)
            }
            _ => end.state(&self.here.status()?, &mishap),
        }
    }

    fn checkpoint(&mut self, name: &str, after: After, mishap: &Mishap) -> Result<(End, bool)> {
        let options: &[&str] = match after {
            After::GoesOn => &["--leave-running"],
            After::Ends => &[],
        };
        self.lab.order(&mishap.order())?;
        let operation = self.here.begin_checkpoint(name, options)?;
        let cut = mishap.strike(&operation)?;
        let output = operation.wait_with_output()?;
        self.lab.order("")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let end = self.end(output.status.success(), cut && said.is_empty(), said)?;
        let complete = match &end {
            End::Success => true,
            End::Failure(said) => said.contains("the image is complete"),
            End::Cut => false,
        };
        Ok((end, complete))
    }

    fn end(&self, success: bool, cut: bool, said: String) -> Result<End> {
        if success {
            ensure!(said.is_empty(), "success that has something to say: {said}");
            return Ok(End::Success);
        }
        if !cut {
            eprintln!("    {said}");
            return Ok(End::Failure(said));
        }
        // What it had started goes on by itself.
        until_none(|| {
            let still = self
                .lab
                .command("pgrep")
                .args(["-x", "criu|runc"])
                .output()?;
            let still = String::from_utf8_lossy(&still.stdout).into_owned();
            Ok(Some(format!("CRIU or runc: {still}")).filter(|_| !still.is_empty()))
        })?;
        Ok(End::Cut)
    }

    /// Every process of the container answers, and has counted on.
    fn is_well(&mut self) -> Result<()> {
        let answer = self.lab.ask(PORT)?.context("no answer")?;
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
        let find = ["find", "/run/stasis/containers", "-type", "f"];
        let found = self.lab.host.run_for_text(&find).unwrap_or_default();
        ensure!(found.is_empty(), "still recorded: {found}");
        Ok(())
    }

    /// Restores the container that has ended, after at most one restore that fails.
    fn restore(&mut self, name: &str, random: &mut Rng) -> Result<State> {
        let mishap = Mishap::any(random, &self.workload.tags(ID));
        eprintln!("  restore: {mishap:?}");
        self.lab.order(&mishap.order())?;
        let mut operation = self.here.begin_restore(name)?;
        let cut = mishap.strike(&operation)?;
        let success = operation.wait()?.success();
        self.lab.order("")?;
        if !success {
            let said = self.here.said()?.unwrap_or_default();
            eprintln!("    {said}");
            ensure!(cut || !said.is_empty(), "a failure without a word");
            let status = self.here.status()?;
            ensure!(cut || status.is_empty(), "{status} after: {said}");
            self.here.delete().context("after a restore that failed")?;
            self.here.restore(name).context("the second restore")?;
        }
        self.is_well().context("after the restore")?;
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
        self.lab.host.run(&["rm", "-rf", &self.here.image(name)])?;
        Ok(())
    }

    fn verb(&self, verb: &str) -> Result<()> {
        let output = self.here.runtime(&[verb, ID]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{verb}: {said}");
        Ok(())
    }

    fn start_again(&mut self) -> Result<()> {
        self.here.delete()?;
        self.nothing_is_recorded()?;
        self.here.run()?;
        self.last = self.workload.read(&self.lab.ask_until_up(PORT)?)?;
        Ok(())
    }

    pub(crate) fn end_it(self) -> Result<()> {
        self.here.delete()?;
        self.nothing_is_recorded()?;
        for bundle in [&self.here, &self.there] {
            let lab = if std::ptr::eq(bundle, &self.here) {
                self.lab
            } else {
                self.elsewhere
            };
            let directory = bundle.directory();
            lab.host.run(&["umount", &format!("{directory}/rootfs")])?;
            lab.host.run(&["rm", "-r", &directory])?;
        }
        Ok(())
    }
}
