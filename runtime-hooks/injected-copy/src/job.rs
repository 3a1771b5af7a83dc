//! How one thread shares a copy out, and why that is correct.
//!
//! A copy is cut into rounds of at most 64 parts. Each part has one word, generation and owner, and
//! goes through *free*, *owned* (by the caller or by one helper), *done*:
//!
//! 1. The caller, which has the helpers to itself (`Job::taken`), writes the job, then makes each
//!    part free in a new generation (store, **Release**), then announces the generation.
//! 2. A thread that wants a part exchanges exactly the free word that it saw for one with its own
//!    name (compare-and-swap, **Acquire**), then reads the job, copies, and marks the part done
//!    (store, **Release**).
//! 3. The caller takes parts as helpers do. When none is free it waits for each: until it is done
//!    (load, **Acquire**), or until the thread id of its owner is 0 (load, **Acquire**): then it
//!    copies the part again. Then, and only then, memcpy returns.
//!
//! *The owner of a part reads the right job.* Its exchange reads the word that the caller stored
//! after the job (Release, Acquire). The caller writes the next job only after step 3, so after the
//! last read of every owner: it has seen that the owner is done, or has ended.
//!
//! *A late helper changes nothing.* It may stop anywhere for any time. Before its exchange it has
//! only read. A free word exists once (a generation never comes again), so if the exchange
//! succeeds, its round is still on and waits for it; if the round is over, the exchange fails.
//!
//! *A killed helper changes nothing.* Its name was in the word before its first byte. The kernel
//! sets the thread id to 0 when the thread has left its memory for good (`exit_mm`, for every way
//! to end), so after all its writes; the part that it left half-done is written again from a source
//! that nothing may change before memcpy returns. If it is killed between its last byte and *done*,
//! its part is copied twice, with the same bytes.
//!
//! *Slow is not dead.* The code looks at no clock.
#![allow(unsafe_code)] // raw memory of the process

use core::hint::spin_loop;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::board::{Board, HELPERS, PARTS, Part};
use crate::bytes::copy_bytes;
use crate::system;

/// Bytes that one thread copies at a time: large enough that handing a part out has no measurable
/// cost, small enough that also 11 or 15 threads end a step of 2 MiB together.
pub const PART: usize = 64 << 10;
/// The most bytes of a round.
pub(crate) const ROUND: usize = PARTS * PART;
const _: () = assert!(HELPERS < 0xfe, "each helper has a name");
/// How often the caller looks before it yields its CPU.
const LOOKS: u32 = 256;

/// Owner of a part: the lowest byte of its word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(u8);

impl Owner {
    /// No owner any more: the part is done. So are all parts of a new board, which is zeros.
    const DONE: Self = Self(0);
    const CALLER: Self = Self(0xfe);
    /// No owner yet.
    const FREE: Self = Self(0xff);

    /// The helper at `index`, which is below [`HELPERS`].
    pub(crate) fn helper(index: u8) -> Self {
        Self(index + 1)
    }

    fn of(word: u64) -> Self {
        Self(word.to_le_bytes()[0])
    }

    /// The word of the same generation that names this owner.
    fn instead(self, word: u64) -> u64 {
        word >> 8 << 8 | u64::from(self.0)
    }
}

/// A part that was free when it was looked at.
pub(crate) struct Offer<'b> {
    board: &'b Board,
    index: usize,
    word: u64,
}

/// A part that this thread has: the round waits for it.
pub(crate) struct Taken<'b> {
    board: &'b Board,
    index: usize,
}

impl Board {
    /// Gives the helpers to the calling thread, unless another has them.
    pub(crate) fn take_helpers(&self) -> bool {
        let taken = &self.job.taken;
        taken.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Releases the helpers.
    pub(crate) fn give_helpers_back(&self) {
        self.job.taken.store(0, Release);
    }

    /// Copies at most [`ROUND`] bytes together with the helpers.
    ///
    /// # Safety
    /// The calling thread has the helpers; the ranges are valid and do not overlap.
    pub(crate) unsafe fn share(&self, to: *mut u8, from: *const u8, length: usize) {
        // SAFETY: as the caller promises.
        unsafe { self.announce(to, from, length) };
        self.work();
    }

    /// Steps 2 and 3, for the caller.
    pub(crate) fn work(&self) {
        while let Some(offer) = self.look(0) {
            if let Some(taken) = offer.take(Owner::CALLER) {
                taken.copy();
            }
        }
        for index in 0..PARTS {
            self.settle(index);
        }
    }

    /// Step 1.
    ///
    /// # Safety
    /// As for [`Board::share`].
    pub(crate) unsafe fn announce(&self, to: *mut u8, from: *const u8, length: usize) {
        let (job, news) = (&self.job, &self.news);
        job.to.store(to, Relaxed);
        job.from.store(from.cast_mut(), Relaxed);
        job.length.store(length, Relaxed);
        let generation = news.generation.load(Relaxed) + 1;
        for part in self.parts.iter().take(length.div_ceil(PART)) {
            part.0.store(Owner::FREE.instead(generation << 8), Release);
        }
        // Helpers count themselves, then look at the generation, then sleep: one of us sees the
        // other (SeqCst). Where that fails, the helper is late by 10 ms.
        news.generation.store(generation, SeqCst);
        if news.asleep.load(SeqCst) != 0 {
            system::wake(&news.generation);
        }
    }

    /// Returns a free part, searched from `start` on, so that threads begin at different parts.
    pub(crate) fn look(&self, start: usize) -> Option<Offer<'_>> {
        (0..PARTS).find_map(|step| {
            let index = (start + step) % PARTS;
            let word = self.part(index).0.load(Relaxed);
            (Owner::of(word) == Owner::FREE).then_some(Offer {
                board: self,
                index,
                word,
            })
        })
    }

    /// Step 3: returns when no thread touches a part's memory any more, and all of it is written.
    fn settle(&self, index: usize) {
        let mut looks = 0;
        loop {
            let owner = Owner::of(self.part(index).0.load(Acquire));
            if owner == Owner::DONE {
                return;
            }
            if self.is_dead(owner) {
                return Taken { board: self, index }.copy();
            }
            looks += 1;
            if looks < LOOKS {
                spin_loop();
            } else {
                system::yield_now();
            }
        }
    }

    /// Whether an owner is a helper that has ended.
    fn is_dead(&self, owner: Owner) -> bool {
        let thread = self.threads.get(usize::from(owner.0).wrapping_sub(1));
        thread.is_some_and(|thread| thread.id.load(Acquire) == 0)
    }

    /// Returns a part. The remainder avoids a bounds check that could panic.
    fn part(&self, index: usize) -> &Part {
        &self.parts[index % PARTS]
    }
}

impl<'b> Offer<'b> {
    /// Step 2, its first half.
    pub(crate) fn take(self, owner: Owner) -> Option<Taken<'b>> {
        let Self { board, index, word } = self;
        let owned = owner.instead(word);
        let exchanged = board
            .part(index)
            .0
            .compare_exchange(word, owned, Acquire, Relaxed);
        exchanged.ok().map(|_| Taken { board, index })
    }
}

impl Taken<'_> {
    /// Step 2, its second half.
    pub(crate) fn copy(self) {
        let job = &self.board.job;
        let start = self.index * PART;
        let length = job.length.load(Relaxed).saturating_sub(start).min(PART);
        let (to, from) = (job.to.load(Relaxed), job.from.load(Relaxed));
        // SAFETY: the round waits for this part, so its ranges are valid, and no other has it.
        unsafe { copy_bytes(to.add(start), from.add(start), length) };
        let word = &self.board.part(self.index).0;
        word.store(Owner::DONE.instead(word.load(Relaxed)), Release);
    }
}
