//! The processes that push images of containers that are stopped: each with its stop
//! (`lifecycle/src/at_stop/push.rs`), and pushes that were cut off or failed, later (`again`).

pub(super) mod again;
mod attempt;
mod latest;
pub(super) mod newest;

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stasis_engine::error::chain;
use stasis_engine::operation::timeline::Timeline;
use stasis_host::respawn::{NotBegun, lines_of, say};
use stasis_lifecycle::at_stop::push::{Push, Told};
use stasis_lifecycle::stopped::is_complete;

use crate::error::MoveError;
use attempt::{Pushed, attempt, end, is_settled, may_pass};
use latest::Latest;

/// The interval of looks at an image of which no process reports.
const LOOK: Duration = Duration::from_millis(100);
/// Pauses between tries.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A registry that is away for longer needs its operator, and then so does the image.
const TRIED_FOR: Duration = Duration::from_secs(3600);

/// Announces the image, waits for it, and pushes it; `false` if that fails.
#[must_use]
pub(crate) fn run(push: Result<Push, NotBegun>) -> bool {
    let begun = push.map_err(|error| chain(&error)).and_then(|push| {
        let latest = Latest::of(&push).map_err(|error| chain(&error))?;
        Ok((push, latest))
    });
    match begun {
        Ok((push, latest)) => push_when_complete(&push, &latest),
        Err(why) => {
            let _ = say(&Err::<(), _>(why));
            false
        }
    }
}

fn push_when_complete(push: &Push, latest: &Latest) -> bool {
    // Without the note's lock the push works too, until it is killed.
    let held = push.to_push.hold().ok().flatten();
    let _ = say(&latest.announce().map_err(|error| chain(&error)));
    let lines = lines_of(io::stdin());
    if what_is_told(push, &lines, latest) == Told::NoImage {
        // An image that is still being made may be pushed later.
        if let Some(held) = held.filter(|_| is_gone(&push.image())) {
            held.remove();
        }
        return latest.take_back(push).is_ok();
    }
    let image = push.image();
    let mut timeline = Timeline::default().of_image(&image);
    let tried = timeline.time("push", || {
        latest.while_renewed(|| until_pushed(push, latest))
    });
    end(push, latest, timeline, &tried);
    if let Some(held) = held.filter(|_| is_settled(&tried)) {
        held.remove();
    }
    tried.is_ok()
}

fn what_is_told(push: &Push, lines: &Receiver<String>, latest: &Latest) -> Told {
    loop {
        match lines.recv_timeout(latest.renewed_each()) {
            Ok(line) => {
                let told = serde_json::from_str(&line);
                return told.unwrap_or_else(|_| what_is_there(push, latest));
            }
            Err(RecvTimeoutError::Timeout) => latest.renew(),
            Err(RecvTimeoutError::Disconnected) => return what_is_there(push, latest),
        }
    }
}

/// Waits for the image after the stopping process was killed: its checkpoint goes on, or is
/// undone by its keeper.
fn what_is_there(push: &Push, latest: &Latest) -> Told {
    let image = push.image();
    latest.while_renewed(|| {
        let began = Instant::now();
        while !is_gone(&image) && began.elapsed() < push.how.settings.deadlines.stalled() {
            if is_complete(&image) {
                return Told::Complete;
            }
            sleep(LOOK);
        }
        Told::NoImage
    })
}

/// Tries again while the registry cannot be reached, or this machine has no room.
fn until_pushed(push: &Push, latest: &Latest) -> Result<Pushed, MoveError> {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt(push, latest) {
            Err(error) if may_pass(&error) && began.elapsed() < TRIED_FOR => {
                sleep(pause);
                pause = LONGEST_PAUSE.min(pause * 2);
            }
            tried => return tried,
        }
    }
}

/// A directory that cannot be examined may exist.
fn is_gone(image: &Path) -> bool {
    matches!(image.try_exists(), Ok(false))
}
