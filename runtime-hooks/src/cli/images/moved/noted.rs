//! What is read through others, who have their own words for what failed below them.

use std::io::{self, Read};

/// Reads, and keeps the error.
#[derive(Debug)]
pub(super) struct Noted<R> {
    pub(super) inner: R,
    failed: Option<io::Error>,
}

impl<R> Noted<R> {
    pub(super) fn new(inner: R) -> Self {
        let failed = None;
        Self { inner, failed }
    }

    /// The error as it came.
    pub(super) fn failed(&mut self) -> Option<io::Error> {
        self.failed.take()
    }
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(into).map_err(|error| {
            let kind = error.kind();
            // Whoever reads tries again by himself.
            if kind != io::ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }
}
