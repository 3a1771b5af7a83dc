//! Judges a container after an operation: its state, from its processes, its driver and its status,
//! is compared with what the operation promised and reported.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use stasis_engine::error::kind::{Kind, State};

use crate::campaign::end::End;
use crate::campaign::fault::{AtCall, Fault};
use crate::campaign::found::Found;
use crate::campaign::images::{Images, image_name};
use crate::campaign::operation::Over;
use crate::campaign::subject::Subject;
use crate::campaign::verb::{Place, Verb};
use crate::faults::Hit;

/// An operation, its fault, and what came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The operation.
    pub verb: Verb,
    /// Its fault.
    pub fault: Fault,
    /// Where the fault fired; empty if it did not.
    pub fired: Vec<String>,
    /// How it ended.
    pub end: End,
    /// Its standard error, and its notes in the log.
    pub said: String,
    /// The calls that were counted.
    pub calls: Vec<Hit>,
}

/// An operation that is over, and has not been judged.
#[derive(Debug)]
pub struct Done {
    verb: Verb,
    image: String,
    fault: Fault,
    over: Over,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fired, stderr) = (self.over.fired.join(", then "), self.over.stderr.trim());
        write!(f, "{:?}, fired at {fired:?}, wrote {stderr:?}", self.fault)
    }
}

/// Where a container was, was to be, and is.
#[derive(Debug)]
struct Moved {
    before: Place,
    promised: Place,
    now: Place,
    /// Whether the operation was killed without a word.
    is_silent: bool,
}

impl Moved {
    fn as_promised(&self) -> bool {
        self.now == self.promised
    }

    /// A container that waits may have got its room meanwhile.
    fn nowhere(&self) -> bool {
        self.now == self.before || self.now == Place::Runs && self.before == Place::Waits
    }

    fn to_wait(&self) -> bool {
        self.now == Place::Waits && (self.before.goes_on() || self.promised.goes_on())
    }
}

impl Subject<'_> {
    /// Carries out an operation without a fault, which has to succeed.
    pub fn succeeds(&mut self, verb: Verb) -> Result<()> {
        let outcome = self.does(verb, Fault::None)?;
        ensure!(
            outcome.end == End::Succeeded,
            "{verb} without a fault: {outcome:?}"
        );
        Ok(())
    }

    /// Carries out an operation with a fault, and judges its outcome.
    pub fn does(&mut self, verb: Verb, fault: Fault) -> Result<Outcome> {
        let done = self.begins(verb, fault)?;
        self.is_judged(done)
    }

    /// Carries out an operation with a fault. Processes that it started may be at work still.
    pub fn begins(&mut self, verb: Verb, fault: Fault) -> Result<Done> {
        self.looks_again()?;
        let image = self.image_for(verb)?;
        let over = self.carry_out(verb, &image, &fault)?;
        Ok(Done {
            verb,
            image,
            fault,
            over,
        })
    }

    /// Judges the outcome, once all processes that work in the host have ended.
    pub fn is_judged(&mut self, done: Done) -> Result<Outcome> {
        let about = format!("{} of {}, {done}", done.verb, self.id());
        let Done {
            verb,
            image,
            fault,
            over,
        } = done;
        let judged = match verb {
            Verb::Stop | Verb::Create | Verb::Start => self.judge_life(verb, &fault, &over),
            _ => self.judge(verb, &image, &fault, &over),
        };
        let end = judged.or_else(|why| self.is_lost_with_criu(&over, why));
        let end = end.context(about)?;
        Ok(Outcome {
            said: over.stderr + &self.noted_since(over.log_began)?,
            verb,
            fault,
            fired: over.fired,
            end,
            calls: over.calls,
        })
    }

    fn image_for(&mut self, verb: Verb) -> Result<String> {
        Ok(match (&self.place, verb) {
            (Place::Ended(image), Verb::Restore) => image.clone(),
            (_, Verb::Restore) => bail!("nothing to restore"),
            _ => match &mut self.images {
                Images::Apart(count) => {
                    *count += 1;
                    image_name(*count - 1)
                }
                Images::Together => image_name(0),
            },
        })
    }

    fn judge(&mut self, verb: Verb, image: &str, fault: &Fault, over: &Over) -> Result<End> {
        let before = match verb {
            // The caller's own pause.
            Verb::Paused => Place::Paused,
            _ => self.place.clone(),
        };
        self.stasis.nobody_works()?;
        if let Fault::AtCall(AtCall { what, .. }) = fault
            && !over.success
        {
            self.is_recovered(*what)?;
        }
        let now = self.place_when_settled(image)?;
        let promised = match verb {
            Verb::Checkpoint => Place::Ended(image.to_owned()),
            Verb::Paused => Place::Paused,
            Verb::Suspend => Place::Suspended,
            _ => Place::Runs,
        };
        let says_so = !over.success && self.says_it_is_lost(verb, over)?;
        // The other processes may wait for one that has crashed.
        let has_crashed = fault.crashes() && !over.fired.is_empty();
        let is_lost = |now: &Place| says_so || has_crashed && *now != Place::Runs;
        let now = match now {
            Found::At(now) if !is_lost(&now) => now,
            _ if fault.is_final() && !over.fired.is_empty() => {
                self.start_again()?;
                return Ok(End::LostByDriver);
            }
            Found::At(now) => bail!("it is {now:?}, and said to be lost"),
            Found::Partly(why) | Found::Lost(why) => bail!("it is lost: {why}"),
        };
        let is_silent = fault.is_silent() && self.is_silent(verb, over)?;
        if !over.success && !is_silent {
            self.reports(verb, &now)?;
        }
        let moved = Moved {
            before,
            promised,
            now,
            is_silent,
        };
        let end = self.end_of(verb, over, &moved)?;
        self.place = moved.now;
        let loses_keeper = fault.kills_keeper() && !over.fired.is_empty();
        self.lacks_keeper = self.place == Place::Waits && (self.lacks_keeper || loses_keeper);
        match &self.place {
            Place::Runs => self.counts_on()?,
            Place::Ended(_) => self.bundle.delete()?,
            _ => return Ok(end),
        }
        self.nothing_is_recorded()?;
        Ok(end)
    }

    /// Looks again at a container that waited for room: it may have got it since.
    pub(super) fn looks_again(&mut self) -> Result<()> {
        if self.place == Place::Waits {
            // A container that waits has no image that it could have ended in.
            match self.place_when_settled("none")? {
                Found::At(place) => self.place = place,
                Found::Partly(why) | Found::Lost(why) => {
                    bail!("it has waited for room, and is lost: {why}")
                }
            }
        }
        Ok(())
    }

    /// Returns how an operation ended that left a container where it is now.
    fn end_of(&self, verb: Verb, over: &Over, moved: &Moved) -> Result<End> {
        Ok(match () {
            // A resume lets a container go on also without room.
            () if moved.to_wait() && (!over.success || verb == Verb::Resume) => End::WaitsForRoom,
            () if over.success && moved.as_promised() => End::Succeeded,
            () if moved.is_silent && moved.nowhere() => End::KilledAsBefore,
            () if moved.is_silent && moved.as_promised() => End::KilledWhenDone,
            () if over.success => bail!("it succeeded: {moved:?}"),
            () if moved.nowhere() => self.failed(verb, over)?,
            // It frees the GPU or says that it has not.
            () if moved.as_promised() && verb != Verb::Suspend => End::FailedWithImage,
            () => bail!("{moved:?}"),
        })
    }

    /// Returns the kind of failure that an operation reports.
    fn kind(&self, verb: Verb, over: &Over) -> Result<Option<Kind>> {
        let says = |kind: &Kind| over.stderr.contains(&format!("[{}]", kind.name()));
        Ok(match verb {
            // It writes no log; its last line ends with the kind.
            Verb::Suspend | Verb::Wake => Kind::ALL.iter().copied().find(says),
            _ => self.bundle.failure()?.and_then(|failure| failure.kind),
        })
    }

    /// Returns how an operation ended that failed and has changed nothing.
    fn failed(&self, verb: Verb, over: &Over) -> Result<End> {
        Ok(match self.kind(verb, over)? {
            Some(Kind::NoGpuMemory) if self.stasis.is_short_of_room()? => End::NoRoom,
            Some(Kind::LockTimeout) => End::NotLocked,
            _ => End::FailedAsBefore,
        })
    }

    /// Whether it ended without a word. A restore has no standard error of its own.
    fn is_silent(&self, verb: Verb, over: &Over) -> Result<bool> {
        let is_logged = verb == Verb::Restore && self.bundle.message()?.is_some();
        Ok(over.stderr.is_empty() && !is_logged)
    }

    /// Whether an operation that failed reports that the container cannot be used any more.
    fn says_it_is_lost(&self, verb: Verb, over: &Over) -> Result<bool> {
        if matches!(verb, Verb::Suspend | Verb::Wake) {
            // It has no log, and the driver reports a process lost in a restore as CHECKPOINTED.
            let says = |text| over.stderr.contains(text);
            // A container that waits for room is not lost, whatever made the operation fail.
            return Ok(says("could not be brought back") && !says("the driver was not asked"));
        }
        let state = self.bundle.failure()?.and_then(|failure| failure.state);
        let lost = [State::Lost, State::Unknown];
        Ok(state.is_some_and(|state| lost.contains(&state)))
    }

    /// Checks that the reported failure agrees with the container's state.
    fn reports(&self, verb: Verb, now: &Place) -> Result<()> {
        if matches!(verb, Verb::Suspend | Verb::Wake | Verb::Restore) {
            return Ok(());
        }
        let failure = self.bundle.failure()?.context("a failure without a word")?;
        let has_ended = matches!(now, Place::Ended(_));
        ensure!(
            has_ended == (failure.state == Some(State::Ended)) || failure.state.is_none(),
            "it is {now:?}, but: {failure:?}"
        );
        Ok(())
    }
}
