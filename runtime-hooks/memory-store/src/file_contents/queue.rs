//! Work for several threads, complete or still to come.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::{Buffer, StoreError};

/// Pieces that threads take, from the first to the last, while others are added.
#[derive(Debug)]
pub(crate) struct Queue<P> {
    state: Mutex<QueueState<P>>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<P> {
    pieces: VecDeque<P>,
    /// The number of threads at work, until no more pieces come: then all work.
    at_work: usize,
    /// No more pieces come.
    is_whole: bool,
}

/// One of the threads.
pub(crate) struct Worker<'q, P> {
    queue: &'q Queue<P>,
    number: usize,
}

impl<P> Worker<'_, P> {
    /// Returns the next piece; waits for one, and until this thread is to work. None if all are
    /// taken, or a thread has failed.
    pub(crate) fn take(&self) -> Option<P> {
        let mut state = self.queue.state();
        loop {
            if self.number < state.at_work || state.is_whole {
                let piece = state.pieces.pop_front();
                if piece.is_some() || state.is_whole {
                    return piece;
                }
            }
            let changed = self.queue.changed.wait(state);
            state = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<P> Queue<P> {
    /// Adds pieces, and sets the number of threads at work. After a failure the pieces are dropped.
    pub(crate) fn add(&self, pieces: impl IntoIterator<Item = P>, at_work: NonZeroUsize) {
        let mut state = self.state();
        if !state.is_whole {
            state.pieces.extend(pieces);
            state.at_work = at_work.get();
            self.changed.notify_all();
        }
    }

    fn no_more(&self) {
        self.state().is_whole = true;
        self.changed.notify_all();
    }

    fn give_up(&self) {
        self.state().pieces.clear();
        self.no_more();
    }

    fn state(&self) -> MutexGuard<'_, QueueState<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has `threads` take the pieces that `bring` adds. Each begins `work` once, which takes pieces
/// until there are none. If one fails, or `bring` does, the others find no more.
pub(crate) fn share_out_coming<P: Send, R: Send, E: From<StoreError>>(
    threads: NonZeroUsize,
    work: impl Fn(&Worker<'_, P>) -> Result<R, StoreError> + Sync,
    bring: impl FnOnce(&Queue<P>) -> Result<(), E>,
) -> Result<Vec<R>, E> {
    let queue = Queue {
        state: Mutex::new(QueueState {
            pieces: VecDeque::new(),
            at_work: 0,
            is_whole: false,
        }),
        changed: Condvar::new(),
    };
    let work = |number| {
        let queue = &queue;
        let result = work(&Worker { queue, number });
        if result.is_err() {
            queue.give_up();
        }
        result
    };
    thread::scope(|scope| {
        let work = &work;
        let threads = (0..threads.get()).map(|number| scope.spawn(move || work(number)));
        let threads: Vec<_> = threads.collect();
        let brought = bring(&queue);
        match brought {
            Ok(()) => queue.no_more(),
            Err(_) => queue.give_up(),
        }
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        brought?;
        let results = results.into_iter();
        let results = results.map(|result| result.unwrap_or(Err(StoreError::Panic)));
        Ok(results.collect::<Result<_, _>>()?)
    })
}

/// Has at most `threads` take pieces that are complete from the beginning.
pub(crate) fn share_out<P: Send, R: Send>(
    pieces: impl ExactSizeIterator<Item = P>,
    threads: NonZeroUsize,
    work: impl Fn(&Worker<'_, P>) -> Result<R, StoreError> + Sync,
) -> Result<Vec<R>, StoreError> {
    let threads = NonZeroUsize::new(pieces.len()).map_or(threads, |pieces| pieces.min(threads));
    share_out_coming(threads, work, |queue| {
        queue.add(pieces, threads);
        Ok(())
    })
}

/// Does `work` with each of the items, by threads with a buffer each. The results are in the order
/// of the items.
pub(crate) fn for_each<I: Sync, T: Send>(
    items: &[I],
    threads: usize,
    work: impl Fn(&I, &mut Buffer) -> Result<T, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
    let done = share_out(items.iter().enumerate(), threads, |items| {
        let mut buffer = Buffer::new();
        let mut done = Vec::new();
        while let Some((number, item)) = items.take() {
            done.push((number, work(item, &mut buffer)?));
        }
        Ok(done)
    })?;
    let mut done: Vec<_> = done.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const ONE: NonZeroUsize = NonZeroUsize::MIN;
    const THREE: NonZeroUsize = NonZeroUsize::new(3).unwrap();

    fn all(worker: &Worker<'_, usize>) -> Vec<usize> {
        std::iter::from_fn(|| worker.take()).collect()
    }

    #[test]
    fn what_comes_is_taken_once_and_before_the_last_has_come() {
        let (done, of_first) = mpsc::channel();
        let work = |worker: &Worker<'_, usize>| {
            let mut taken = Vec::new();
            while let Some(piece) = worker.take() {
                taken.push(piece);
                done.send(piece).unwrap();
            }
            Ok(taken)
        };
        let taken = share_out_coming(THREE, work, |queue| -> Result<(), StoreError> {
            queue.add(0..10, ONE);
            let first: Vec<_> = of_first.iter().take(10).collect();
            // Taken by one thread, in their order.
            assert_eq!(first, (0..10).collect::<Vec<_>>());
            queue.add(10..100, THREE);
            Ok(())
        });
        let mut taken = taken.unwrap().concat();
        taken.sort_unstable();
        assert_eq!(taken, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn who_brings_nothing_more_ends_the_work() {
        let why = || StoreError::Impossible {
            what: "it is over".to_owned(),
        };
        let taken = share_out_coming(
            THREE,
            |worker| Ok(all(worker)),
            |queue| {
                queue.add(0..3, THREE);
                Err(why())
            },
        );
        assert_eq!(taken.unwrap_err().to_string(), why().to_string());
        let none = share_out_coming(THREE, |worker| Ok(all(worker)), |_| Ok::<_, StoreError>(()));
        assert_eq!(none.unwrap().concat(), [0; 0]);
    }

    #[test]
    fn the_first_that_fails_ends_the_work() {
        let taken = AtomicUsize::new(0);
        let work = |worker: &Worker<'_, usize>| {
            while let Some(piece) = worker.take() {
                taken.fetch_add(1, Ordering::Relaxed);
                if piece == 5 {
                    let what = "of the fifth".to_owned();
                    return Err(StoreError::Impossible { what });
                }
            }
            Ok(())
        };
        let failed = share_out_coming(ONE, work, |queue| -> Result<(), StoreError> {
            queue.add(0..1000, ONE);
            Ok(())
        });
        assert!(failed.unwrap_err().to_string().ends_with("of the fifth"));
        assert_eq!(taken.load(Ordering::Relaxed), 6);
        let work = |worker: &Worker<'_, usize>| match worker.take() {
            Some(_) => panic!("on purpose"),
            None => Ok(()),
        };
        let failed = share_out_coming(ONE, work, |queue| -> Result<(), StoreError> {
            queue.add([1], ONE);
            Ok(())
        });
        assert!(matches!(failed, Err(StoreError::Panic)));
    }

    #[test]
    fn what_comes_of_items_is_in_their_order() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [0, 3] {
            let done = for_each(&items, threads, |item, _| Ok(item + 1)).unwrap();
            assert_eq!(done, (1..=1000).collect::<Vec<_>>());
        }
        assert_eq!(for_each(&[0; 0], 3, |_, _| Ok(())).unwrap(), []);
    }
}
