//! One request, for the code that answers it: its items, their values, and the host word.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::board::{Answer, ITEMS, Item, Request, VisitState};
use crate::driver::{Driver, Result};
use crate::hooks::Hooks;
use crate::system::{nap, now};

/// Between two looks at the host word.
const NAP_NS: u64 = 50_000;

/// A request to work on, and its answer.
#[derive(Clone, Copy)]
pub(crate) struct Errand<'b> {
    pub(crate) driver: Driver<'b>,
    pub(crate) request: &'b Request,
    pub(crate) host: &'b AtomicU64,
    pub(crate) answer: &'b Answer,
    pub(crate) hooks: &'b Hooks,
}

/// How waiting has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    LetGoOn,
    /// The word has not come: the asking process may have ended.
    Abandoned,
}

impl<'b> Errand<'b> {
    pub(crate) fn items(
        &self,
    ) -> impl DoubleEndedIterator<Item = (usize, Item)> + ExactSizeIterator + use<'b> {
        let count = usize::try_from(self.request.count).unwrap_or(ITEMS);
        let items = self.request.items.iter().copied();
        items.take(count).enumerate()
    }

    pub(crate) fn set_value(&self, index: usize, words: [u64; 2]) {
        let Some([first, second]) = self.answer.values.get(index) else {
            return;
        };
        first.store(words[0], Relaxed);
        second.store(words[1], Relaxed);
    }

    pub(crate) fn value(&self, index: usize) -> [u64; 2] {
        let value = self.answer.values.get(index);
        value.map_or([0; 2], |[first, second]| {
            [first.load(Relaxed), second.load(Relaxed)]
        })
    }

    /// Returns the result of a step for an item. Notes the item if the step failed.
    pub(crate) fn of<T>(&self, index: usize, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.answer.item.store(index as u64, Relaxed);
        }
        result
    }

    /// Reports the thread's state, and waits for the host word: for so long that the asking process
    /// has been killed or will not continue.
    pub(crate) fn wait(&self, state: VisitState, turn: u64) -> Waited {
        self.answer.state.store(state as u64, Release);
        let patience = self.request.patience_ns;
        let began = now();
        let mut naps = 0;
        while self.host.load(Acquire) < turn {
            // The naps are counted, too: a filter may refuse the clock.
            if naps >= patience / NAP_NS || now().wrapping_sub(began) > patience {
                self.answer.abandoned.store(1, Relaxed);
                return Waited::Abandoned;
            }
            nap(NAP_NS);
            naps += 1;
        }
        Waited::LetGoOn
    }
}
