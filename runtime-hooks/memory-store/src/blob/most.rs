//! What is more than a registry takes, told before anything is sent.

use std::collections::HashSet;

use super::cut::{BlobsOf, Lengths};
use super::plan::Key;
use crate::index::codec;
use crate::index::limits::INDEX_BYTES;
use crate::{Index, StoreError};

/// Refuses what might be more than an image may have, if nothing can be compressed; how many blobs
/// of others it may have as well.
pub(super) fn refuse_too_much(
    sort: BlobsOf,
    index: &Index,
    contents: &HashSet<Key>,
    lengths: Lengths,
) -> Result<usize, StoreError> {
    let too_much = |what| StoreError::TooMuch { what };
    let (blobs, most) = (sort.most(), codec::most_bytes(index, sort.most()));
    if most > INDEX_BYTES {
        let what = format!("its index may have {most} bytes, and no more than {INDEX_BYTES}");
        return Err(too_much(what));
    }
    let bytes = contents.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    let others = blobs.checked_sub(lengths.most_blobs(contents.len(), bytes));
    others.ok_or_else(|| {
        let [all, each] = [bytes, lengths.least].map(|bytes| bytes.div_ceil(1 << 20));
        let what = sort.what();
        too_much(format!(
            "{all} MiB of {what} do not fit into {blobs} blobs of {each} MiB"
        ))
    })
}
