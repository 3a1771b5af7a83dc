//! The result of a recovery, and its line in `operations.log`.

use stasis_host::cancel::Cancel;

use crate::error::after_failure::AfterFailure;
use crate::error::kind::State;
use crate::error::operations_log;
use crate::error::{Error, Failure};
use crate::operation::Left;
use crate::operation::Operation;
use crate::operation::progress::Progress;
use crate::operation::timeline::Timeline;
use crate::operation::undo::Undo;
use crate::operation::verb::Verb;
use crate::recovery::recover;

/// The phase of all of it.
const PHASE: &str = "recover";

/// How a recovery ended.
#[derive(Debug)]
pub enum Recovered {
    /// The container is as it was found, or has ended.
    Undone(State),
    /// It cannot be brought back.
    Lost(Error),
    /// It has to be tried again.
    NotYet(Error),
}

/// Which results get a line in `operations.log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogWhen {
    Always,
    /// Not that it has to be tried again.
    WhenOver,
}

/// Undoes what is recorded, and writes a line to `operations.log`.
pub(crate) fn recover_and_report(operation: &Operation, undo: &Undo, report: LogWhen) -> Recovered {
    let context = undo.context(Cancel::not_needed());
    let progress = Progress::begin(&context, operation, Verb::Recover);
    let mut timeline = Timeline::with_progress(progress);
    timeline.note(format!("a {} was cut off", undo.verb()));
    let recovered = timeline.time(PHASE, || recover(&context, operation, undo));
    let after_failure = recovered.tell(PHASE, &mut timeline);
    operation.leave(after_failure.left());
    let recovered = Recovered::of(undo, after_failure);
    let error = match &recovered {
        Recovered::Undone(_) => None,
        Recovered::NotYet(_) if report == LogWhen::WhenOver => return recovered,
        Recovered::Lost(error) | Recovered::NotYet(error) => Some(error),
    };
    operations_log::write(&context, Verb::Recover, &undo.id, &timeline, error);
    recovered
}

impl Recovered {
    fn of(undo: &Undo, after_failure: AfterFailure) -> Self {
        let state = after_failure.state();
        let failed = |after_failure| {
            let cause = Failure::CutOff { verb: undo.verb() };
            Error::failed(Verb::Recover, &undo.id, cause, after_failure)
        };
        match after_failure.left() {
            Left::Nothing => Self::Undone(state),
            Left::Lost => Self::Lost(failed(after_failure)),
            Left::ToUndo => Self::NotYet(failed(after_failure)),
        }
    }
}
