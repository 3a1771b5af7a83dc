//! Work in pieces, for several threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::StoreError;

/// The chunks of a piece, at most. Those of a piece lie side by side in a pack and are read by one
/// thread, so a disk reads long parts.
pub(crate) const PIECE: u16 = 16;

/// Pieces that threads take, from the first to the last.
#[derive(Debug)]
pub(crate) struct Pieces<'p, P> {
    pieces: &'p [P],
    next: AtomicUsize,
}

impl<P> Pieces<'_, P> {
    /// The next one, if there is one and no thread has failed.
    pub(crate) fn take(&self) -> Option<&P> {
        self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Has so many threads take the pieces. Each begins `work` once, which takes pieces until there are
/// none. If one fails, the others find no more.
pub(crate) fn share_out<P: Sync, R: Send>(
    pieces: &[P],
    threads: NonZeroUsize,
    work: impl Fn(&Pieces<'_, P>) -> Result<R, StoreError> + Sync,
) -> Result<Vec<R>, StoreError> {
    let shared = Pieces {
        pieces,
        next: AtomicUsize::new(0),
    };
    let work = || {
        let result = work(&shared);
        if result.is_err() {
            shared.next.store(pieces.len(), Ordering::Relaxed);
        }
        result
    };
    let threads = threads.get().min(pieces.len());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        results
            .into_iter()
            .map(|result| result.unwrap_or(Err(StoreError::Panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

    #[test]
    fn each_piece_is_taken_once() {
        let pieces: Vec<_> = (0..100).collect();
        let taken = share_out(&pieces, TWO, |pieces| {
            Ok(std::iter::from_fn(|| pieces.take().copied()).collect::<Vec<_>>())
        });
        let mut taken = taken.unwrap().concat();
        taken.sort_unstable();
        assert_eq!(taken, pieces);
    }

    #[test]
    fn the_first_that_fails_ends_the_work() {
        let pieces: Vec<_> = (0..1 << 20).collect();
        let last = AtomicUsize::new(0);
        let failed = share_out(&pieces, TWO, |pieces| {
            while let Some(piece) = pieces.take() {
                last.fetch_max(*piece, Ordering::Relaxed);
                if *piece == 5 {
                    let what = "of the fifth".to_owned();
                    return Err(StoreError::Impossible { what });
                }
                thread::yield_now();
            }
            Ok(())
        });
        assert!(failed.unwrap_err().to_string().ends_with("of the fifth"));
        assert!(last.into_inner() < pieces.len() - 1);
    }

    #[test]
    fn a_thread_that_panics_is_an_error() {
        let failed = share_out(&[1], TWO, |_| -> Result<(), _> { panic!("on purpose") });
        assert!(matches!(failed, Err(StoreError::Panic)));
    }
}
