//! Containers that ask for a checkpoint when they are stopped: the caller's signal begins a
//! checkpoint in place of their end, and CRIU ends them after it.
//!
//! Whatever prevents the checkpoint, the signal is delivered as if nothing had been asked, and the
//! log has the reason: a container that cannot be stopped is worse than a lost one. SIGKILL always
//! means the end, also of a checkpoint that is under way.

mod asked;
mod keep;
pub mod process;
pub mod push;
mod stop_image;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::libc::SIGKILL;
use stasis_host::signal;

use crate::at_create::ended_soon::Noted;
use crate::at_stop::asked::{AtStop, InvalidAtStop};
use crate::at_stop::process::StopProcess;
use crate::at_stop::stop_image::StopImage;
use crate::pod::NoNamespace;
use crate::request::{KillRequest, StopCommands};
use crate::stopped::push_again::PushAgain;
use crate::stopped::repository::{NoRepository, repository_of};
use stasis_engine::container::spec::Spec;
use stasis_engine::context::{Context, Outcome};
use stasis_engine::error::chain;
use stasis_engine::error::operations_log;
use stasis_engine::image::allowed::NotAllowed;
use stasis_engine::operation::awaited_start::awaits_start;
use stasis_engine::operation::stopping::Stopping;
use stasis_engine::operation::terminate::ask_to_end;
use stasis_engine::operation::timeline::Timeline;
use stasis_engine::operation::verb::Verb;

/// Why there is no checkpoint in the place of the container's end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCheckpoint {
    /// The settings have no place for it.
    #[error("the settings keep no image of a container that is stopped (restore.keep_at_stop)")]
    Off,
    /// An annotation cannot be used.
    #[error(transparent)]
    Annotation(#[from] InvalidAtStop),
    /// The namespace of its pod is not known.
    #[error(transparent)]
    Namespace(#[from] NoNamespace),
    /// Users other than root could put images there.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// There is no directory for it, or no lock.
    #[error("cannot use {path}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The process that makes it cannot be started.
    #[error("cannot start the process that makes the checkpoint")]
    Start(#[source] io::Error),
}

/// Begins the checkpoint that a container has asked for in the place of this signal, in a process
/// of its own: the caller waits for the container's end, not for this call. Passes signals that
/// stop no container on to the low-level runtime.
pub fn kill(context: &Context, request: &KillRequest, commands: StopCommands) -> Outcome {
    match begin(context, request, commands) {
        Ok(outcome) => outcome,
        Err(why) => {
            let mut timeline = Timeline::default();
            timeline.note(delivered(request.signal, &chain(&why)));
            operations_log::write(context, Verb::Stop, &request.id, &timeline, None);
            Outcome::PassThrough
        }
    }
}

/// Why a container was not created: no checkpoint could take the place of its end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Unusable {
    #[error("{0}; nothing was created")]
    Annotation(#[from] InvalidAtStop),
    #[error("{0}; nothing was created")]
    Repository(NoRepository),
}

/// Refuses a container whose annotations cannot be used, or of which images made at its stop could
/// not go to the registry of the settings. A specification that cannot be read is left to the
/// low-level runtime.
pub fn check(registry: &str, bundle: &Path, id: &str) -> Result<(), Unusable> {
    let Ok(spec) = Spec::read(bundle) else {
        return Ok(());
    };
    let asked = AtStop::of(&spec)?;
    let Some(asked) = asked.filter(|_| !registry.is_empty()) else {
        return Ok(());
    };
    match repository_of(registry, &spec, &asked.key(&spec, id)?) {
        Err(error @ NoRepository::Name { .. }) => Err(Unusable::Repository(error)),
        // Its namespace is checked when it matters.
        _ => Ok(()),
    }
}

fn begin(
    context: &Context,
    request: &KillRequest,
    commands: StopCommands,
) -> Result<Outcome, NoCheckpoint> {
    let (state_dir, root, id) = (
        &context.settings.paths.state_dir,
        &context.root,
        &request.id,
    );
    // The low-level runtime reports a container that cannot be found or read.
    let Some(container) = context.container(id).ok().flatten() else {
        return Ok(Outcome::PassThrough);
    };
    // Some callers also signal a container that has ended.
    if !container.init().is_gone() {
        Noted::of(context, id).forget();
    }
    let Some(spec) = container.spec() else {
        return Ok(Outcome::PassThrough);
    };
    let Some(asked) = AtStop::of(&spec)? else {
        return Ok(Outcome::PassThrough);
    };
    if request.signal == SIGKILL {
        // The checkpoint ends by itself once the container has, but sooner if it is asked to.
        let _ = ask_to_end(state_dir, root, id);
        return Ok(Outcome::PassThrough);
    }
    if !asked.is_for(request.signal) || awaits_start(state_dir, root, id) {
        return Ok(Outcome::PassThrough);
    }
    if context.settings.restore.keep_at_stop == 0 {
        return Err(NoCheckpoint::Off);
    }
    let stopping = Stopping::of(state_dir, root, id, container.init());
    let begun = stopping.begin().map_err(io_error(state_dir))?;
    let Some(lock) = begun else {
        return Ok(Outcome::Done(0));
    };
    let restore = &context.settings.restore;
    let start = || {
        let key = asked.key(&spec, id)?;
        let place = StopImage::make(&restore.at_create, &spec, &key)?;
        // A key that no registry can have was refused when the container was created; if that was
        // before the setting, the image stays here.
        let has_repository = |_: &_| repository_of(&restore.registry, &spec, &key).is_ok();
        let pushed = PushAgain::of(&context.settings).filter(has_repository);
        let image = &place.image;
        let process = StopProcess::new(context, request, commands, &stopping, image, pushed);
        process.start(lock, place.being_made).map_err(|error| {
            let _ = fs::remove_dir(image);
            NoCheckpoint::Start(error)
        })
    };
    let started: Result<(), NoCheckpoint> = start();
    if started.is_err() {
        stopping.end();
    }
    started.map(|()| Outcome::Done(0))
}

/// Returns the note for a signal that was delivered after all.
fn delivered(signal: i32, why: &str) -> String {
    let signal = signal::name_of(signal);
    format!("{signal} was delivered, without a checkpoint: {why}")
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> NoCheckpoint {
    let path = path.to_owned();
    |source| NoCheckpoint::Io { path, source }
}
