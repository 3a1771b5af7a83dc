//! What a guardian does, from its start to its end (`guardian.rs` says what for).

use std::io;
use std::time::{Duration, SystemTime};

use stasis_config::Settings;

use crate::aftermath::Aftermath;
use crate::cancel::Cancel;
use crate::container::Container;
use crate::engine::Engine;
use crate::error::{Error, Failure, Verb};
use crate::fault::Fault;
use crate::guardian::Charge;
use crate::members::{can_answer, revive};
use crate::operation::{Operation, OperationError, glance};
use crate::operation_log;
use crate::process::ProcessRef;
use crate::progress::Progress;
use crate::timeline::Timeline;
use crate::watchdog::WatchedDriver;

/// How long it waits between two looks: at first, and in the end.
const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(2);

/// What a look came to.
enum Look {
    /// Nothing is left to wait for.
    Over,
    /// Not every process can answer, or somebody else operates on the container.
    NotYet,
}

/// Carries a charge out.
///
/// # Errors
/// Something that it needs cannot be had; the record stays, and the next operation on the container puts
/// things right.
pub fn guard(charge: Charge) -> io::Result<()> {
    let Some(init) = ProcessRef::open(charge.init)? else {
        return Ok(());
    };
    let watch = Watch::begin(charge)?;
    let mut pause = FIRST;
    // Its start time is compared each time the container is loaded.
    while init.outlives(pause)? {
        pause = (pause * 2).min(LAST);
        if watch.engine.cancel.requested() || matches!(watch.look(), Look::Over) {
            return Ok(());
        }
    }
    if let Ok(Some(operation)) = watch.take() {
        operation.forget();
    }
    Ok(())
}

struct Watch {
    charge: Charge,
    engine: Engine,
    /// One for all looks: it knows which calls are still out.
    driver: WatchedDriver,
}

impl Watch {
    fn begin(charge: Charge) -> io::Result<Self> {
        let settings = Settings {
            driver: charge.driver.clone(),
            deadlines: charge.deadlines.clone(),
            paths: charge.paths.clone(),
            ..Settings::default()
        };
        let engine = Engine {
            settings,
            low_level: charge.low_level.clone(),
            root: charge.root.clone(),
            cancel: Cancel::on_signals()?,
            began: SystemTime::now(),
        };
        let driver = engine.open_driver(&charge.id).map_err(io::Error::other)?;
        Ok(Self {
            charge,
            engine,
            driver,
        })
    }

    fn look(&self) -> Look {
        let state_dir = &self.engine.settings.paths.state_dir;
        let recorded = glance(state_dir, &self.engine.root, &self.charge.id);
        if !recorded.is_ok_and(|intent| {
            intent.is_some_and(|intent| intent.is_guarded_by(self.charge.token))
        }) {
            return Look::Over;
        }
        let Some(container) = self.container() else {
            return Look::NotYet;
        };
        if !all_can_answer(&container) {
            return Look::NotYet;
        }
        match self.take() {
            Ok(Some(operation)) => self.give_back(&container, &operation),
            Ok(None) => Look::Over,
            Err(_) => Look::NotYet,
        }
    }

    /// The container of the charge, not another that has got its id.
    fn container(&self) -> Option<Container> {
        let found = self.engine.container(&self.charge.id).ok()??;
        let same = found.init().start_time() == self.charge.init_start_time;
        same.then_some(found)
    }

    /// The right to operate on the container, if what is recorded of it still is what this guardian is for.
    fn take(&self) -> Result<Option<Operation>, OperationError> {
        let state_dir = &self.engine.settings.paths.state_dir;
        let operation = Operation::begin(state_dir, &self.engine.root, &self.charge.id)?;
        let intent = operation.recorded()?;
        let ours = intent.is_some_and(|intent| intent.is_guarded_by(self.charge.token));
        Ok(ours.then_some(operation))
    }

    fn give_back(&self, container: &Container, operation: &Operation) -> Look {
        let progress = Progress::begin(&self.engine, operation, Verb::Guard);
        let mut timeline = Timeline::told_by(progress);
        let lost = timeline.time("give back", || match container.processes() {
            Ok(processes) => revive(&self.driver, &processes),
            Err(error) => vec![Fault::of_look(container.init(), error)],
        });
        if container.init().is_gone() || !lost.is_empty() && lost.iter().all(Fault::may_pass) {
            return Look::NotYet;
        }
        let error = lost.into_iter().next().map(|fault| {
            let aftermath = Aftermath::Lost(Vec::new());
            Error::failed(
                Verb::Guard,
                container.id(),
                Failure::Process(fault),
                aftermath,
            )
        });
        operation_log::write(
            &self.engine,
            Verb::Guard,
            container.id(),
            &timeline,
            error.as_ref(),
        );
        if error.is_none() {
            operation.forget();
        }
        Look::Over
    }
}

fn all_can_answer(container: &Container) -> bool {
    let Ok(processes) = container.processes() else {
        return false;
    };
    matches!(container.cgroup().is_held(), Ok(false))
        && processes.iter().all(|process| can_answer(process).is_ok())
}
