//! Retries queued pushes that no process holds.

use std::thread::sleep;
use std::time::Instant;

use stasis_engine::operation::timeline::Timeline;
use stasis_host::respawn::NotBegun;
use stasis_lifecycle::at_stop::push::Push;
use stasis_lifecycle::stopped::is_complete;
use stasis_lifecycle::stopped::push_again::PushAgain;
use stasis_lifecycle::stopped::to_push::{Held, hold_all};

use crate::at_stop::attempt::{Pushed, attempt, end, is_settled, may_pass};
use crate::at_stop::latest::Latest;
use crate::at_stop::{FIRST_PAUSE, LONGEST_PAUSE, TRIED_FOR, is_gone};
use crate::error::MoveError;

/// A complete image.
struct Left {
    held: Held,
    push: Push,
    latest: Latest,
}

/// Pushes one image after the other, the latest first: earlier images of its key are left
/// behind then. `false` if a push failed.
#[must_use]
pub(crate) fn run(again: Result<PushAgain, NotBegun>) -> bool {
    let Ok(again) = again else { return false };
    // All are held until the end: a process that comes meanwhile leaves them to this one.
    let Ok(held) = hold_all(&again.settings.restore.at_create) else {
        return false;
    };
    let mut left: Vec<_> = held
        .into_iter()
        .filter_map(|held| left(&again, held))
        .collect();
    let (began, mut pause, mut all) = (Instant::now(), FIRST_PAUSE, true);
    loop {
        let may_wait = began.elapsed() < TRIED_FOR;
        let mut unreached = Vec::new();
        for one in left {
            match one.attempt() {
                Err(error) if may_pass(&error) && may_wait => unreached.push(one),
                tried => all &= one.end(&tried),
            }
        }
        if unreached.is_empty() {
            return all;
        }
        left = unreached;
        sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Decides on a note: removes it if the image is gone.
fn left(again: &PushAgain, held: Held) -> Option<Left> {
    let push = Push {
        how: again.clone(),
        to_push: held.to_push.clone(),
    };
    let image = push.image();
    if is_gone(&image) {
        held.remove();
        return None;
    }
    // An image that is being made, or was cut off, is decided on later.
    let latest = is_complete(&image).then(|| Latest::of(&push))?.ok()?;
    Some(Left { held, push, latest })
}

impl Left {
    fn attempt(&self) -> Result<Pushed, MoveError> {
        self.latest
            .while_renewed(|| attempt(&self.push, &self.latest))
    }

    fn end(self, tried: &Result<Pushed, MoveError>) -> bool {
        let image = self.push.image();
        let timeline = Timeline::default().of_image(&image);
        end(&self.push, &self.latest, timeline, tried);
        if is_settled(tried) {
            self.held.remove();
        }
        tried.is_ok()
    }
}
