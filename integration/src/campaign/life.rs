//! Judges a container that was stopped, created or started: its state has to be what was reported
//! and promised (`docs/create.md`).

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use crate::campaign::end::End;
use crate::campaign::fault::{AtCall, Beside, Fault};
use crate::campaign::found::Found;
use crate::campaign::lives::First;
use crate::campaign::operation::Over;
use crate::campaign::subject::Subject;
use crate::campaign::verb::{Place, Verb};
use crate::check::wait::wait_until_clear;

/// The notes of a stop whose signal was delivered, or could not be.
const DELIVERED: &str = "was delivered";
const NOT_DELIVERED: &str = "cannot be delivered";
const COLD: &str = "started cold";

impl Subject<'_> {
    /// Judges a stop, a create or a start.
    pub(super) fn judge_life(&mut self, verb: Verb, fault: &Fault, over: &Over) -> Result<End> {
        self.stasis.nobody_works()?;
        if let Fault::AtCall(AtCall { what, .. }) = fault
            && (verb == Verb::Stop || !over.success)
        {
            self.is_recovered(*what)?;
        }
        let end = match verb {
            Verb::Stop => self.judge_stop(fault, over),
            Verb::Create => self.judge_create(fault, over),
            _ => self.judge_start(fault, over),
        };
        let end = end?;
        if matches!(self.place, Place::Runs | Place::Stopped) {
            self.nothing_is_recorded()?;
        }
        Ok(end)
    }

    /// Whether no image was found for it when it was created.
    pub(super) fn begins_cold(&self) -> bool {
        let first = self.lives.as_ref().map(|lives| &lives.first);
        matches!(first, Some(First::Nothing))
    }

    fn judge_stop(&mut self, fault: &Fault, over: &Over) -> Result<End> {
        let said = self.logged("stop", over.log_began)?;
        let notes = notes(said.as_ref());
        if notes.contains(DELIVERED) && !notes.contains(NOT_DELIVERED) {
            wait_until_clear(|| Ok(Some(self.bundle.status()?).filter(|now| !has_ended(now))))?;
        }
        let new = self.images_are_kept()?;
        let about = || format!("the image {new:?}; said: {said:?}");
        if !has_ended(&self.bundle.status()?) {
            ensure!(new.is_none(), "it goes on, with {}", about());
            return self.goes_on(fault, over, said.as_ref());
        }
        self.bundle.delete()?;
        self.place = Place::Stopped;
        let was_delivered = notes.contains(DELIVERED);
        let is_hit = !over.fired.is_empty();
        Ok(match (&said, new.is_some()) {
            (Some(_), true) if notes.is_empty() => End::Succeeded,
            (_, true) if was_delivered => bail!("delivered, with {}", about()),
            (Some(_), true) => End::FailedWithImage,
            (None, true) => End::KilledWhenDone,
            (_, false) if notes.contains("[lock-timeout]") => End::NotLocked,
            (_, false) if was_delivered && is_hit => End::Signalled,
            (_, false) if is_hit && matches!(fault, Fault::Beside(Beside::Kill, _)) => {
                End::Signalled
            }
            (_, false) if is_hit && (fault.is_final() || fault.crashes()) => End::LostByDriver,
            (_, false) if over.tasks_were_held => End::LostByCriu,
            (_, false) => bail!("it is lost, with {}", about()),
        })
    }

    /// Judges a stop that has not ended the container.
    fn goes_on(&mut self, fault: &Fault, over: &Over, said: Option<&Value>) -> Result<End> {
        let notes = notes(said);
        match self.place_when_settled("none")? {
            Found::At(now) if now == self.place => {}
            Found::At(Place::Runs) if self.place == Place::Waits => self.place = Place::Runs,
            _ if fault.is_final() && !over.fired.is_empty() => {
                self.start_again()?;
                return Ok(End::LostByDriver);
            }
            now => bail!("it is {now:?}; said: {said:?}"),
        }
        if self.place == Place::Runs {
            self.counts_on()?;
        }
        let message = self.bundle.message()?;
        Ok(match said {
            _ if over.fired.is_empty() => bail!("it goes on without a fault: {said:?}"),
            Some(_) if notes.contains(NOT_DELIVERED) => End::FailedAsBefore,
            None if !over.success && message.is_some() => End::FailedAsBefore,
            None if fault.is_silent() => End::KilledAsBefore,
            _ => bail!("it goes on: {said:?}, {message:?}"),
        })
    }

    fn judge_create(&mut self, fault: &Fault, over: &Over) -> Result<End> {
        let said = self.logged("create", over.log_began)?;
        let newest = self.lives()?.newest().cloned();
        let (status, message) = (self.bundle.status()?, self.bundle.message()?);
        ensure!(self.images_are_kept()?.is_none(), "a create makes an image");
        if status.is_empty() {
            ensure!(!over.success, "it succeeded, and there is none: {said:?}");
            return match message {
                Some(_) => Ok(End::FailedAsBefore),
                None if fault.is_silent() => Ok(End::KilledAsBefore),
                None => bail!("it failed without a word: {said:?}"),
            };
        }
        ensure!(status == "created", "it is {status}");
        let is_cold = notes(said.as_ref()).contains(COLD);
        let image = said.as_ref().and_then(|said| said["image_path"].as_str());
        let image = image.and_then(|image| image.rsplit('/').next());
        let is_silent = fault.is_silent() && message.is_none();
        // A create that was killed before it wrote a line shows its image at the start.
        let image = match image {
            None if !is_cold && is_silent => newest.as_deref(),
            image => image,
        };
        self.place = Place::Created;
        ensure!(
            is_cold || image == newest.as_deref(),
            "not {newest:?}: {said:?}"
        );
        self.lives()?.first = match image.filter(|_| !is_cold) {
            Some(image) => First::Image(image.to_owned()),
            None => First::Nothing,
        };
        if is_cold {
            let is_told =
                matches!(fault, Fault::Beside(..)) || self.bundle.warnings()?.contains(COLD);
            ensure!(is_told, "it starts cold without a warning: {said:?}");
        }
        Ok(match () {
            () if is_cold && newest.is_some() && over.fired.is_empty() => bail!("{said:?}"),
            () if is_cold && newest.is_some() => End::Cold,
            () if over.success => End::Succeeded,
            () if is_silent => End::KilledWhenDone,
            () => bail!("it failed, and is created: {said:?}, {message:?}"),
        })
    }

    fn judge_start(&mut self, fault: &Fault, over: &Over) -> Result<End> {
        let said = self.logged("start", over.log_began)?;
        let (status, message) = (self.bundle.status()?, self.bundle.message()?);
        let is_hit = !over.fired.is_empty();
        let is_silent = fault.is_silent() && is_hit && message.is_none();
        ensure!(self.images_are_kept()?.is_none(), "a start makes an image");
        let failed = || match (over.success, &message) {
            (false, Some(_)) => Ok(End::FailedAsBefore),
            (false, None) if is_silent => Ok(End::KilledAsBefore),
            _ => bail!("it is {status:?}: {said:?}"),
        };
        if status == "created" {
            return failed();
        }
        let now = match has_ended(&status) {
            true => Found::Lost(status.clone()),
            false => self.place_when_settled("none")?,
        };
        match now {
            Found::At(Place::Runs) => self.begins_where_it_was()?,
            _ if is_hit && (fault.is_final() || fault.crashes()) => {
                self.start_again()?;
                return Ok(End::LostByDriver);
            }
            _ if has_ended(&status) => {
                self.start_again()?;
                return failed().map(|_| End::FailedWithImage);
            }
            now => bail!("it is {now:?}: {said:?}"),
        }
        Ok(match over.success {
            true => End::Succeeded,
            false if is_silent => End::KilledWhenDone,
            false => bail!("it failed, and runs: {said:?}, {message:?}"),
        })
    }

    /// Checks that it runs, from its image or cold, as it was created.
    fn begins_where_it_was(&mut self) -> Result<()> {
        self.place = Place::Runs;
        let lives = self.lives()?;
        if let First::Image(image) = &lives.first {
            let image = image.clone();
            self.last = lives.goes_on_with(&image)?;
            return self.counts_on();
        }
        lives.starts_cold();
        self.last = self.workload.read(&self.stasis.ask_until_up(self.port)?)?;
        Ok(())
    }
}

fn has_ended(status: &str) -> bool {
    ["", "stopped"].contains(&status)
}

fn notes(said: Option<&Value>) -> String {
    let notes = said
        .map(|said| &said["notes"])
        .filter(|notes| !notes.is_null());
    notes.map(Value::to_string).unwrap_or_default()
}
