//! The process that pushes the image of a container that is stopped
//! (`checkpoint::at_stop::push`).

mod latest;

use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime};

use stasis_memory_store::Lengths;
use stasis_oci_image::{Digest, Reference};

use super::push::push;
use super::source::Source;
use crate::checkpoint::at_stop::push::{Answer, Push, Told};
use crate::cli::command_error::MoveError;
use crate::error::chain;
use crate::error::kind::{Diagnosis, Kind, State};
use crate::error::operations_log::{Failed, write_afterwards};
use crate::host::respawn::say;
use crate::image::directory::is_settled;
use crate::image::manifest::Manifest;
use crate::image::stopped::tag_of;
use crate::operation::timeline::Timeline;
use latest::Latest;

/// How often it is looked what has become of an image, if nobody says it.
const LOOK: Duration = Duration::from_millis(100);
/// Between two tries, if the registry cannot be reached.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A registry that is away for longer needs its operator, and then the image does, too.
const TRIED_FOR: Duration = Duration::from_secs(3600);

impl Push {
    /// Announces the image, waits for it, and pushes it; `false`: it is not there.
    #[must_use]
    pub fn run(&self) -> bool {
        let latest = match Latest::of(self) {
            Ok(latest) => latest,
            Err(error) => {
                let _ = say(&Answer::Unannounced(chain(&error)));
                return false;
            }
        };
        let _ = say(&match latest.announce() {
            Ok(()) => Answer::Announced,
            Err(error) => Answer::Unannounced(chain(&error)),
        });
        let lines = lines_of_input();
        if self.what_is_told(&lines, &latest) == Told::NoImage {
            return latest.take_back().is_ok();
        }
        let mut timeline = Timeline::default().of_image(&self.image);
        let pushed = timeline.time("push", || {
            latest.while_renewed(|| self.until_pushed(&latest))
        });
        if pushed.is_err() {
            let _ = latest.take_back();
        }
        self.log(&timeline, pushed.as_ref().err());
        pushed.is_ok()
    }

    fn what_is_told(&self, lines: &Receiver<Vec<u8>>, latest: &Latest) -> Told {
        loop {
            match lines.recv_timeout(latest.renewed_each()) {
                Ok(line) => return Told::read(&line).unwrap_or_else(|| self.what_is_there(latest)),
                Err(RecvTimeoutError::Timeout) => latest.renew(),
                Err(RecvTimeoutError::Disconnected) => return self.what_is_there(latest),
            }
        }
    }

    /// After the one who stops the container was killed: its checkpoint goes on, or is undone by
    /// its keeper.
    fn what_is_there(&self, latest: &Latest) -> Told {
        latest.while_renewed(|| {
            let began = Instant::now();
            while self.image.exists() && began.elapsed() < self.deadlines.stalled() {
                if self.is_complete() {
                    return Told::Complete;
                }
                sleep(LOOK);
            }
            Told::NoImage
        })
    }

    /// The list of its files is written last.
    fn is_complete(&self) -> bool {
        let manifest = Manifest::read(&self.image).ok().flatten();
        is_settled(&self.image) && manifest.is_some_and(|manifest| manifest.files.is_some())
    }

    /// Tries again while the registry cannot be reached.
    fn until_pushed(&self, latest: &Latest) -> Result<(), MoveError> {
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            match self.push(latest) {
                Err(error) if error.kind() == Kind::Registry && began.elapsed() < TRIED_FOR => {
                    sleep(pause);
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                pushed => return pushed,
            }
        }
    }

    fn push(&self, latest: &Latest) -> Result<(), MoveError> {
        let reference: Reference = self.reference().parse()?;
        let settings = self.settings();
        let source = Source::open(&settings, &self.image)?;
        let place = reference.open(None)?;
        let pushed = push(&settings, source, &*place, &reference, None, Lengths::of)?;
        let digest: Digest = pushed.digest.parse().map_err(|_| MoveError::NoImage {
            reference: self.reference(),
            what: "it has no digest".to_owned(),
        })?;
        Ok(latest.is_this(&digest)?)
    }

    fn reference(&self) -> String {
        format!("{}:{}", self.repository, tag_of(&self.image))
    }

    fn log(&self, timeline: &Timeline<'_>, error: Option<&MoveError>) {
        let failure = error.map(|error| {
            let text = format!(
                "{}; the image stays in {}: `stasis push {} {}` pushes it",
                chain(error),
                self.image.display(),
                self.reference(),
                self.image.display(),
            );
            Failed::new(&text, Diagnosis::new(error.kind(), State::Unharmed))
        });
        let log_dir = &self.paths.log_dir;
        let began = SystemTime::now();
        write_afterwards(log_dir, "push", &self.id, began, timeline, failure);
    }
}

/// Until it ends.
fn lines_of_input() -> Receiver<Vec<u8>> {
    let (send, lines) = channel();
    thread::spawn(move || {
        let mut line = Vec::new();
        if io::stdin().lock().read_until(b'\n', &mut line).is_ok() {
            let _ = send.send(line);
        }
    });
    lines
}
