//! One hostile container, with another one beside it.

use std::cell::Cell;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stasis_engine::error::kind::State;
use stasis_integration::check::wait::wait_until_clear;
use stasis_integration::client::answer::listed;
use stasis_integration::container::bundle::{Bundle, ROOT};
use stasis_integration::container::failure::Failure;
use stasis_integration::container::memory_container::{Inventory, difference};
use stasis_integration::host::installed::{CUDA_CHECKPOINT, PROGRAM, RUNTIME, StasisHost};

use super::capabilities::as_engines_do;

const PORT: u16 = 10300;
const NEIGHBOURS_PORT: u16 = 10301;
/// Runs the runtime, and kills it if it takes so long that it would never end.
const BOUNDED: &str = "/usr/local/bin/bounded-runtime";
const BOUND: [&str; 4] = ["timeout", "--signal", "KILL", "150"];
/// The attempts to resume a container that prevents it now and then.
const ATTEMPTS: u32 = 50;
/// Shorter than the bound: an operation on a stopped process or a silent file system is given up.
const DEADLINES: &str = "deadlines.lock_ms = 4000\ndeadlines.driver_s = 30\n\
                         deadlines.stalled_s = 20\n";

/// The outcome of an operation.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The operation was carried out.
    Done,
    /// The operation was refused, and named the reason.
    Refused(Failure),
}

/// The effect that a trick may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Harm {
    /// Nothing: each operation succeeds.
    None,
    /// It may keep an operation from succeeding: the container lives on.
    ToOthers,
    /// The process may end itself.
    ToItself,
}

/// A hostile container, and the state that has to stay.
pub(super) struct Trial<'l> {
    pub(super) stasis: &'l StasisHost,
    pub(super) hostile: Bundle<'l>,
    harm: Harm,
    neighbour: Bundle<'l>,
    neighbour_counts: Cell<u32>,
    before: Inventory,
}

impl<'l> Trial<'l> {
    /// Starts both containers. The trick has been played once when this returns.
    pub(super) fn start(stasis: &'l StasisHost, trick: &str, harm: Harm) -> Result<Self> {
        Self::start_with(stasis, trick, harm, |_| {})
    }

    /// Does the same with a changed specification.
    pub(super) fn start_with(
        stasis: &'l StasisHost,
        trick: &str,
        harm: Harm,
        change: impl FnOnce(&mut Value),
    ) -> Result<Self> {
        stasis.set(&stasis.low_level, DEADLINES)?;
        let bound = BOUND.join(" ");
        // Messages of `timeout` itself are not the runtime's: pending signals count for all
        // processes of root, so it may find no timer of its first kind, and takes another.
        let script = format!(
            "#!/bin/sh\nexec 3>&2 2>/dev/null\n\
             exec {bound} sh -c 'exec \"$@\" 2>&3 3>&-' sh {RUNTIME} \"$@\"\n"
        );
        stasis.script(BOUNDED, &script)?;
        let port = NEIGHBOURS_PORT.to_string();
        let neighbour = Bundle::make(stasis, "neighbour", &["/bin/counter", &port])?;
        neighbour.comes_up(NEIGHBOURS_PORT, "101")?;
        // The first operation makes the files that stay.
        neighbour.checkpoint("first", &["--leave-running"])?;
        // The first process is a shell: the program's own signals would not reach a first process.
        let command = format!("/bin/hostile {trick} {PORT}; exit 70");
        let hostile = Bundle::make(stasis, "hostile", &["/bin/sh", "-c", &command])?;
        let hostile = hostile.through(BOUNDED);
        hostile.give(&[0])?;
        hostile.change(as_engines_do)?;
        hostile.change(change)?;
        let before = stasis.inventory()?;
        hostile.run()?;
        let trial = Self {
            stasis,
            hostile,
            harm,
            neighbour,
            neighbour_counts: Cell::new(101),
            before,
        };
        stasis.ask_until_up(PORT)?;
        wait_until_clear(|| trial.is_not_played())?;
        Ok(trial)
    }

    /// Carries out every operation on the container as long as it runs, and ends it.
    pub(super) fn endures(self) -> Result<()> {
        self.is_looked_at().context("check")?;
        self.checkpoint("goes-on", &["--leave-running"])?;
        if self.is_there()? && matches!(self.suspend()?, Outcome::Done) {
            self.resume()?;
        }
        if self.is_there()? && matches!(self.checkpoint("ends", &[])?, Outcome::Done) {
            self.restore("ends")?;
        }
        self.end()
    }

    fn is_there(&self) -> Result<bool> {
        Ok(self.hostile.status()? == "running")
    }

    /// Ends the container, and checks that nothing of it is left and that the neighbour is well.
    pub(super) fn end(self) -> Result<()> {
        self.neighbour_counts_on()?;
        self.hostile.delete()?;
        wait_until_clear(|| Ok(difference(&self.before, &self.stasis.inventory()?)))?;
        self.neighbour.checkpoint("last", &[])?;
        self.neighbour.restore("last")?;
        self.neighbour_counts_on()?;
        self.neighbour.delete()
    }

    /// Checks that `stasis check` answers, and returns its report.
    pub(super) fn is_looked_at(&self) -> Result<Value> {
        let mut check = self.stasis.command(BOUND[0]);
        check.args(&BOUND[1..]);
        let output = check
            .args([PROGRAM, "check", "--json", "--root", ROOT, "hostile"])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).with_context(|| {
            let status = output.status;
            format!("{status}: {said}")
        })?;
        let is_refused = !report["kind"].is_null() || report["blockers"] != json!([]);
        assert_eq!(report["checkpointable"], !is_refused, "{report}");
        self.is_as(&Outcome::Done)?;
        Ok(report)
    }

    pub(super) fn checkpoint(&self, image: &str, options: &[&str]) -> Result<Outcome> {
        let what = format!("checkpoint {image}");
        let outcome = match self.hostile.checkpoint(image, options) {
            Ok(()) => Outcome::Done,
            Err(error) => self.refused(&what, &error)?,
        };
        match (&outcome, options.is_empty()) {
            (Outcome::Done, true) => self.has_ended(),
            _ => self.is_as(&outcome),
        }
        .with_context(|| format!("{what}: {outcome:?}"))?;
        Ok(outcome)
    }

    pub(super) fn restore(&self, image: &str) -> Result<Outcome> {
        let outcome = match self.hostile.restore(image) {
            Ok(()) => Outcome::Done,
            Err(error) => self.refused("restore", &error)?,
        };
        match &outcome {
            Outcome::Refused(_) if self.harm != Harm::None => self.has_ended(),
            _ => self.is_as(&outcome),
        }
        .with_context(|| format!("restore: {outcome:?}"))?;
        Ok(outcome)
    }

    /// Suspends the container. If that is refused, the container runs on.
    pub(super) fn suspend(&self) -> Result<Outcome> {
        let outcome = self.toggle()?;
        match outcome {
            Outcome::Done => self.neighbour_counts_on(),
            Outcome::Refused(_) => self.is_as(&outcome),
        }
        .with_context(|| format!("suspend: {outcome:?}"))?;
        Ok(outcome)
    }

    /// Resumes the container, which stays suspended if that is refused, with further attempts.
    pub(super) fn resume(&self) -> Result<()> {
        let mut outcome = self.resume_once()?;
        for _ in 1..ATTEMPTS {
            if matches!(outcome, Outcome::Done) || !self.is_there()? {
                break;
            }
            self.neighbour_counts_on()?;
            outcome = self.resume_once()?;
        }
        self.is_as(&outcome)
            .with_context(|| format!("resume: {outcome:?}"))
    }

    /// A toggle would suspend a container that goes on after a resume that has given up.
    fn resume_once(&self) -> Result<Outcome> {
        let mut resume = self.stasis.command(BOUND[0]);
        resume.args(&BOUND[1..]);
        let output = resume
            .args([PROGRAM, "resume", "--json", "--root", ROOT, "hostile"])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let all = listed(&output.stdout).with_context(|| format!("{}: {said}", output.status))?;
        Ok(match output.status.success() {
            true => Outcome::Done,
            false => Outcome::Refused(Failure::of(&all[0])?),
        })
    }

    fn toggle(&self) -> Result<Outcome> {
        let mut toggle = self.stasis.command(BOUND[0]);
        toggle.args(&BOUND[1..]).arg(CUDA_CHECKPOINT);
        toggle.args(["--toggle", "--container", "hostile", "--root", ROOT]);
        let output = toggle.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(Outcome::Done);
        }
        let failure = Failure::of_cuda_checkpoint(&said);
        let failure = failure.with_context(|| output.status.to_string())?;
        Ok(Outcome::Refused(failure))
    }

    fn refused(&self, what: &str, error: &anyhow::Error) -> Result<Outcome> {
        let failure = self.hostile.failure()?;
        let failure = failure.with_context(|| format!("{what} says nothing: {error:#}"))?;
        let named = failure.kind.is_some() && failure.state.is_some();
        ensure!(named, "{what} is not named: {failure:?}");
        let is_printable = |letter: char| !letter.is_control() || letter == '\n';
        ensure!(failure.message.chars().all(is_printable), "{failure:?}");
        Ok(Outcome::Refused(failure))
    }

    /// Checks that the container is in the state that the operation reports.
    fn is_as(&self, outcome: &Outcome) -> Result<()> {
        self.neighbour_counts_on()?;
        let state = match outcome {
            Outcome::Done => State::Unharmed,
            Outcome::Refused(failure) => failure.state.context("no state")?,
        };
        match (state, self.harm) {
            (_, Harm::None) => {
                ensure!(matches!(outcome, Outcome::Done), "nothing is in its way");
                self.goes_on()
            }
            (State::Unharmed, Harm::ToOthers) => self.goes_on(),
            (State::Unharmed | State::Ended | State::Lost, Harm::ToItself) => Ok(()),
            (State::Ended, _) => self.has_ended(),
            (State::Waiting, _) => {
                wait_until_clear(|| Ok(self.goes_on().err().map(|e| e.to_string())))
            }
            (other, _) => bail!("its state is {other}"),
        }
    }

    pub(super) fn goes_on(&self) -> Result<()> {
        assert_eq!(self.hostile.status()?, "running");
        let answer = self.stasis.ask(PORT)?;
        ensure!(answer.is_some(), "it does not answer");
        Ok(())
    }

    fn has_ended(&self) -> Result<()> {
        self.neighbour_counts_on()?;
        let status = self.hostile.status()?;
        ensure!(status.is_empty() || status == "stopped", "it is {status}");
        Ok(())
    }

    fn neighbour_counts_on(&self) -> Result<()> {
        let next = self.neighbour_counts.get() + 1;
        self.neighbour_counts.set(next);
        let answer = self.stasis.ask(NEIGHBOURS_PORT)?;
        assert_eq!(answer, Some(next.to_string()), "the container beside it");
        Ok(())
    }

    fn is_not_played(&self) -> Result<Option<String>> {
        let answer = self.stasis.ask(PORT)?.unwrap_or_default();
        let played = answer.split(' ').nth(1).unwrap_or("0");
        Ok((played == "0").then_some(answer))
    }
}
