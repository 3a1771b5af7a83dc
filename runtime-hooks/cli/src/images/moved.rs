//! Reports of pushes and pulls.

use std::fmt;

use serde::Serialize;
use stasis_transfer::{Begun, Moved};

use crate::answer::amount::size;
use crate::answer::name;

/// A report, as text too.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Report<T>(pub(super) T);

impl fmt::Display for Report<Moved> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moved = &self.0;
        let (image, reference) = (name(&moved.image.display()), name(&moved.reference));
        writeln!(f, "image {image}, {reference}, {}", moved.digest)?;
        write!(
            f,
            "  {} of {} moved, {} of {} blobs of memory",
            size(moved.moved_bytes),
            size(moved.bytes),
            moved.moved_blobs,
            moved.blobs
        )
    }
}

impl fmt::Display for Report<Begun> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = &self.0;
        let (image, reference) = (name(&begun.image.display()), name(&begun.reference));
        writeln!(f, "image {image}, {reference}")?;
        match begun.arriving {
            true => write!(f, "  a restore can begin; the rest follows"),
            false => write!(f, "  complete"),
        }
    }
}
