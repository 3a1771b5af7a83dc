//! How long locked processes wait for the others.
//!
//! The right time depends on the job, whose steps may take milliseconds or seconds: so it is
//! random, from every order of magnitude. Those who are behind catch up in many short steps, in
//! each of which they submit little, and one long step lets them run ahead in turn: so all
//! processes keep one pace for a while. With waits drawn one by one, three ranks of which two look
//! at every 15th result were not locked within 10 s in 5 of 65 tries (two H200, driver
//! 580.159.04).

use std::time::{Duration, Instant};

/// The shortest wait: about the duration of a driver call.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);
/// How long a pace is kept at least: several short steps, each with some driver calls.
const KEPT: Duration = Duration::from_millis(50);

/// How long processes wait, all of them, for some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// A locked process waits as long for the others before it is unlocked again.
    pub(super) locked: Duration,
    /// An unlocked process waits as long before it is locked again, unless another one has locked.
    pub(super) unlocked: Duration,
    until: Instant,
}

impl Pace {
    /// A random pace with waits from a millisecond to `longest`, each order of magnitude equally
    /// likely.
    pub(super) fn random(longest: Duration) -> Self {
        let orders = (longest.as_secs_f64() / SHORTEST.as_secs_f64()).max(1.0);
        let wait = SHORTEST.mul_f64(orders.powf(fastrand::f64()));
        Self {
            locked: wait,
            unlocked: if fastrand::bool() {
                wait
            } else {
                Duration::ZERO
            },
            until: Instant::now() + wait.max(KEPT),
        }
    }

    /// Whether it is still to be kept.
    pub(super) fn lasts(&self) -> bool {
        Instant::now() < self.until
    }
}
