//! A helper: it takes parts, round after round.

use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::board::{Board, News};
use crate::job::Owner;
use crate::system::{self, Slept};

/// How often a helper looks for a new round before it sleeps. On Intel's processors this takes
/// about one millisecond, elsewhere less; the driver's steps are 90 µs apart.
const LOOKS: u32 = 20_000;

/// A helper's whole life; its process shares the memory of the one that copies (`CLONE_VM`).
pub fn helper(board: &Board, index: usize) -> ! {
    serve(board, index);
    system::exit()
}

/// Serves as the helper at `index` until the board ends all helpers.
pub(crate) fn serve(board: &Board, index: usize) {
    let Some(owner) = known(board, index) else {
        return;
    };
    let mut seen = 0;
    while let Some(generation) = board.news.after(seen) {
        seen = generation;
        while let Some(offer) = board.look(index + 1) {
            if let Some(taken) = offer.take(owner) {
                taken.copy();
            }
        }
    }
}

/// Names a helper; `None` without a thread id (clone(2) had no address for it): it would seem dead.
fn known(board: &Board, index: usize) -> Option<Owner> {
    let thread = board.threads.get(index)?;
    let name = u8::try_from(index).ok()?;
    (thread.id.load(Relaxed) != 0).then_some(Owner::helper(name))
}

impl News {
    /// Waits for a generation other than `seen`; `None` if helpers end.
    fn after(&self, seen: u64) -> Option<u64> {
        let mut looks = 0;
        while self.quit.load(Relaxed) == 0 {
            let generation = self.generation.load(Relaxed);
            if generation != seen {
                return Some(generation);
            }
            if looks < LOOKS {
                looks += 1;
                spin_loop();
            } else {
                self.sleep(seen);
            }
        }
        None
    }

    fn sleep(&self, seen: u64) {
        self.asleep.fetch_add(1, SeqCst);
        if system::sleep(&self.generation, seen) == Slept::Refused {
            system::yield_now();
        }
        self.asleep.fetch_sub(1, Relaxed);
    }
}
