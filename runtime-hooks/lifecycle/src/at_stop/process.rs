//! The process that makes the checkpoint of a stopped container after its caller has been answered,
//! and delivers the signal if the checkpoint fails.
//!
//! The checkpoint is a child process: whatever kills it, this process still ends the container. If
//! this process is killed, the child goes on, and holds its locks: no second signal interrupts it,
//! and the next container waits for its image.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use stasis_config::Settings;
use stasis_host::cancel::Cancel;
use stasis_host::{environment, respawn};
use stasis_linux::ProcessRef;
use stasis_linux::open_files::keep_callers_limit;

use crate::at_stop::delivered;
use crate::at_stop::keep::keep_last;
use crate::at_stop::push::{Push, Pushing, Told};
use crate::request::{KillRequest, StopCommands};
use crate::stopped::push_again::PushAgain;
use crate::stopped::to_push::ToPush;
use stasis_engine::context::{Context, RuntimeLocation};
use stasis_engine::error::kind::Kind;
use stasis_engine::error::operations_log;
use stasis_engine::image::directory::{self, has_inventory, is_ours, is_settled};
use stasis_engine::low_level::answer;
use stasis_engine::operation::stopping::Stopping;
use stasis_engine::operation::timeline::Timeline;
use stasis_engine::operation::verb::Verb;
use stasis_engine::recovery::begin_within;

/// The first argument of such a process; neither runc nor crun has this verb.
const VERB: &str = "stasis-stop";
/// The length of the end of a checkpoint's output that is kept, in bytes.
const MOST_SAID: u64 = 4096;
const POLL: Duration = Duration::from_millis(20);

/// A checkpoint in the place of a signal.
#[derive(Debug, Serialize, Deserialize)]
pub struct StopProcess {
    place: RuntimeLocation,
    id: String,
    stopping: Stopping,
    signal: i32,
    /// Where the image goes: an empty directory.
    image: PathBuf,
    commands: StopCommands,
    settings: Settings,
    began: SystemTime,
    /// How the image is pushed, if it is.
    pushed: Option<PushAgain>,
}

impl StopProcess {
    pub(super) fn new(
        context: &Context,
        request: &KillRequest,
        commands: StopCommands,
        stopping: &Stopping,
        image: &Path,
        pushed: Option<PushAgain>,
    ) -> Self {
        Self {
            place: context.place(),
            id: request.id.clone(),
            stopping: stopping.clone(),
            signal: request.signal,
            image: image.to_owned(),
            commands,
            settings: context.settings.clone(),
            began: context.began,
            pushed,
        }
    }

    /// Starts the process. It holds both locks until it ends: the container's and the key's.
    pub(super) fn start(&self, container: File, key: File) -> io::Result<()> {
        respawn::start_with(VERB, self, [Stdio::from(container), Stdio::from(key)]).map(drop)
    }

    /// The process that this one was started as, if it was.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        respawn::job_of(VERB, c"stasis-stop")
    }

    /// Makes the checkpoint, or delivers the signal.
    pub fn run(self) {
        let context = self.context();
        let container = context.container(&self.id).ok().flatten();
        let init = container.map(|container| container.init().clone());
        let mut timeline = Timeline::default();
        timeline.time("wait", || self.wait_for_earlier(&context, init.as_ref()));
        let pushing = self.announce(&mut timeline);
        match timeline.time("checkpoint", || self.checkpoint(&context)) {
            Ok(()) => {
                let _ = pushing.map(|pushing| pushing.tell(Told::Complete));
                timeline = self.keep(&context, timeline);
            }
            Err(why) => {
                timeline = self.without(&context, timeline, init.as_ref(), &why);
                // If CRIU completed the image all the same, the pushing process finds it.
                let pushing = pushing.filter(|_| !may_have_image(&self.image));
                let _ = pushing.map(|pushing| pushing.tell(Told::NoImage));
            }
        }
        // Pushes images whose pushing process was killed, this one or earlier ones.
        let _ = self.pushed.as_ref().map(PushAgain::start);
        operations_log::write(&context, Verb::Stop, &self.id, &timeline, None);
        self.stopping.end();
    }

    /// Another container may have had the id, and its image may not be on disk yet: a checkpoint
    /// would be refused.
    fn wait_for_earlier(&self, context: &Context, init: Option<&ProcessRef>) {
        let deadline = Instant::now() + self.settings.deadlines.stalled();
        let is_there = || init.is_some_and(|init| !init.is_gone());
        while is_there() && self.stopping.is_behind_another() {
            if Instant::now() > deadline || context.cancel.requested() {
                return;
            }
            sleep(POLL);
        }
    }

    /// Called before the checkpoint can end the container: no earlier image is resumed elsewhere.
    fn announce(&self, timeline: &mut Timeline<'_>) -> Option<Pushing> {
        let how = self.pushed.clone()?;
        match ToPush::new(
            &how.settings.restore.at_create,
            &self.image,
            &self.id,
            self.began,
        ) {
            Ok(to_push) => Pushing::announced(&Push { how, to_push }, timeline),
            Err(error) => {
                timeline.note(format!("the image cannot be pushed: {error}"));
                None
            }
        }
    }

    fn context(&self) -> Context {
        Context {
            settings: self.settings.clone(),
            low_level: self.place.low_level.clone(),
            root: self.place.root.clone(),
            // An operation that ends holders of the lock may signal this process (`terminate.rs`).
            cancel: Cancel::on_signals().unwrap_or_else(|_| Cancel::not_needed()),
            began: self.began,
        }
    }

    /// Runs the checkpoint to its end; returns the reason if it fails.
    fn checkpoint(&self, context: &Context) -> Result<(), String> {
        let cannot = |error: io::Error| format!("the checkpoint cannot be started: {error}");
        // A file, not a pipe: processes that it started may keep its standard error open after it.
        let said = respawn::unnamed("stasis-stop").map_err(cannot)?;
        let locks = [io::stdin().as_fd(), io::stdout().as_fd()].map(inherited);
        let _locks: Vec<_> = locks
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(cannot)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .args(&self.commands.checkpoint)
            .arg("--image-path")
            .arg(&self.image)
            .arg(&self.id)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone().map_err(cannot)?);
        environment::make(&mut command);
        keep_callers_limit(&mut command);
        let status = command.status().map_err(cannot)?;
        if status.success() {
            return Ok(());
        }
        if status.signal().is_some() {
            self.wait_for_killed(context);
        }
        Err(reason(&said, status))
    }

    /// After a checkpoint that was killed: CRIU may go on for as long as it needs, and the keeper
    /// undoes the operation. Then a whole image takes its place.
    fn wait_for_killed(&self, context: &Context) {
        let limit = self.settings.deadlines.stalled();
        while let Err(error) = begin_within(limit, context, &self.id).map(drop)
            && error.kind() == Kind::Busy
            && !context.cancel.requested()
        {}
        let _ = directory::finish(&context.settings, &self.image);
    }

    /// Sends the signal as its caller would have.
    fn deliver(&self, context: &Context) -> Result<(), String> {
        let limit = self.settings.deadlines.stalled();
        let answer = answer(&context.low_level, &self.commands.kill, limit);
        let output = answer.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(last_line(&output.stderr).unwrap_or_else(|| output.status.to_string()))
    }

    fn keep<'t>(&self, context: &Context, timeline: Timeline<'t>) -> Timeline<'t> {
        let mut timeline = timeline.of_image(&self.image);
        let settings = &context.settings;
        for note in keep_last(settings, &self.image, settings.restore.keep_at_stop) {
            timeline.note(note);
        }
        timeline
    }

    /// After a checkpoint that failed. If CRIU has written an image, keeps it: it may be the last
    /// copy.
    fn without<'t>(
        &self,
        context: &Context,
        timeline: Timeline<'t>,
        init: Option<&ProcessRef>,
        why: &str,
    ) -> Timeline<'t> {
        let has_ended = init.is_none_or(ProcessRef::is_gone);
        if has_ended && may_have_image(&self.image) {
            let mut timeline = timeline.of_image(&self.image);
            timeline.note(format!(
                "the checkpoint has ended the container, and failed: {why}"
            ));
            return timeline;
        }
        let mut timeline = timeline;
        if has_ended {
            timeline.note(format!(
                "the container ended before its checkpoint was complete: {why}"
            ));
        } else {
            timeline.note(delivered(self.signal, why));
            if let Err(why) = self.deliver(context) {
                timeline.note(format!("the signal cannot be delivered: {why}"));
            }
        }
        // It may be the only copy of the memory of a running container: not given up.
        let has_memory = !has_ended && is_ours(&self.image);
        let is_kept = has_memory || may_have_image(&self.image);
        if !is_kept && let Err(error) = fs::remove_dir_all(&self.image) {
            let image = self.image.display();
            timeline.note(format!("{image} cannot be removed: {error}"));
        }
        timeline
    }
}

/// Whether CRIU has written an image into a directory. It is in its place, or waits there until an
/// operation puts it in its place.
fn may_have_image(directory: &Path) -> bool {
    has_inventory(directory) || !is_settled(directory)
}

/// Duplicates the descriptor without close-on-exec, so that started processes inherit it.
fn inherited(lock: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let lock = lock.try_clone_to_owned()?;
    fcntl_setfd(&lock, FdFlags::empty())?;
    Ok(lock)
}

/// Returns why the checkpoint failed: the last line of its output, or how it ended.
fn reason(said: &File, status: ExitStatus) -> String {
    let length = said.metadata().map_or(0, |file| file.len());
    let from = length.saturating_sub(MOST_SAID);
    let mut text = vec![0; usize::try_from(length - from).unwrap_or_default()];
    let read = said.read_exact_at(&mut text, from);
    let said = read.ok().and_then(|()| last_line(&text));
    said.unwrap_or_else(|| format!("the checkpoint ended with {status}"))
}

fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests;
