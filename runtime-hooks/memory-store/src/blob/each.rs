//! The same work for many things, by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::{Buffer, StoreError};

/// Does `work` with each of the items, by so many threads with a buffer each. What comes of it is
/// in the order of the items.
///
/// # Errors
/// Of one item; none is begun after it.
pub(super) fn for_each<I: Sync, T: Send>(
    items: &[I],
    threads: usize,
    work: impl Fn(&I, &mut Buffer) -> Result<T, StoreError> + Sync,
) -> Result<Vec<T>, StoreError> {
    let next = AtomicUsize::new(0);
    let in_one = || {
        let mut buffer = Buffer::new();
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else {
                return Ok(done);
            };
            let result = work(item, &mut buffer);
            // The others end as well.
            let result = result.inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?;
            done.push((number, result));
        }
    };
    let results: Vec<Result<_, StoreError>> = thread::scope(|scope| {
        let threads = threads.clamp(1, items.len().max(1));
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(in_one)).collect();
        let joined = started.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|one| one.unwrap_or(Err(StoreError::Panic)))
            .collect()
    });
    let mut done = Vec::new();
    for result in results {
        done.extend(result?);
    }
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
