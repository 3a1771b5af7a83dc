//! Blobs on their way to a registry or layout, counted. Blobs of bulk memory are sent side by side
//! while the next one is gathered: blobs that are gathered and not sent yet are in files, whose
//! number and bytes are limited.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use stasis_memory_store::{BlobDigest, MOST_BLOB_BYTES, NewBlobs};
use stasis_oci_image::{Digest, Kind, OciImageError};

use crate::error::MoveError;
use crate::places::{Elsewhere, NewBlob, StoreOutcome, Stored};
use crate::push::Progress;

/// More connections do not help: registries that limit a connection allow some hundred MB/s each.
const AT_ONCE: usize = 4;
/// A blob of more bytes is sent alone.
const MOST_WAITING: u64 = 4 << 30;

/// A layer of the manifest.
pub(super) type Layer = (Kind, Digest, u64);

/// Writes blobs, and counts them.
pub(super) struct Outgoing<'s, 'p> {
    /// The registry or layout.
    pub(super) place: &'p dyn Elsewhere,
    scope: &'s Scope<'s, 'p>,
    progress: &'p dyn Progress,
    growing: Option<Box<dyn NewBlob + 'p>>,
    /// Blobs being sent, the first one in front.
    sending: VecDeque<Sending<'s>>,
    pub(super) moved_bytes: u64,
    pub(super) moved_blobs: usize,
}

/// A blob that waits until all of the image is known to fit.
pub(super) struct Waiting<'p> {
    kind: Kind,
    blob: Box<dyn NewBlob + 'p>,
}

/// A blob that cannot exceed the limit of all blobs.
struct Bounded<'p> {
    blob: Box<dyn NewBlob + 'p>,
    left: u64,
    what: &'static str,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64);
        let left = left.ok_or_else(|| io::Error::other(OciImageError::TooLarge(self.what)))?;
        let written = self.blob.write(bytes)?;
        self.left = left;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.blob.flush()
    }
}

/// A blob that is being sent.
struct Sending<'s> {
    bytes: u64,
    sent: ScopedJoinHandle<'s, Result<Stored, OciImageError>>,
}

impl<'s, 'p> Outgoing<'s, 'p> {
    /// Makes it, with threads of this scope.
    pub(super) fn new(
        place: &'p dyn Elsewhere,
        progress: &'p dyn Progress,
        scope: &'s Scope<'s, 'p>,
    ) -> Self {
        Self {
            place,
            scope,
            progress,
            growing: None,
            sending: VecDeque::new(),
            moved_bytes: 0,
            moved_blobs: 0,
        }
    }

    fn count(&mut self, stored: &Stored) {
        if stored.outcome == StoreOutcome::New {
            self.moved_bytes += stored.bytes;
        }
    }

    /// Adds a small blob.
    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<(Digest, u64), MoveError> {
        let stored = self.place.put(bytes)?;
        self.count(&stored);
        Ok((stored.digest, stored.bytes))
    }

    /// Makes a blob of what `write` writes, without sending it yet.
    pub(super) fn gather(
        &self,
        kind: Kind,
        what: &'static str,
        write: impl FnOnce(&mut dyn Write) -> Result<(), MoveError>,
    ) -> Result<Waiting<'p>, MoveError> {
        let mut blob = Bounded {
            blob: self.place.new_blob()?,
            left: MOST_BLOB_BYTES,
            what,
        };
        write(&mut blob)?;
        let blob = blob.blob;
        Ok(Waiting { kind, blob })
    }

    /// Sends waiting blobs.
    pub(super) fn finish(&mut self, waiting: Vec<Waiting<'p>>) -> Result<Vec<Layer>, MoveError> {
        let mut layers = Vec::new();
        for Waiting { kind, blob } in waiting {
            let stored = blob.finish()?;
            self.count(&stored);
            layers.push((kind, stored.digest, stored.bytes));
        }
        Ok(layers)
    }

    /// Waits until all blobs are stored.
    pub(super) fn wait(&mut self) -> Result<(), MoveError> {
        while let Some(first) = self.sending.pop_front() {
            self.wait_for(first)?;
        }
        Ok(())
    }

    fn wait_for(&mut self, blob: Sending<'s>) -> Result<(), MoveError> {
        let stored = blob
            .sent
            .join()
            .unwrap_or_else(|panic| resume_unwind(panic))?;
        self.count(&stored);
        if stored.outcome == StoreOutcome::New {
            self.moved_blobs += 1;
        }
        Ok(())
    }

    /// Sends a blob as soon as there is room for it.
    fn send(&mut self, blob: Box<dyn NewBlob + 'p>, bytes: u64) -> Result<(), MoveError> {
        let waiting = |sending: &VecDeque<Sending<'s>>| -> u64 {
            sending.iter().map(|blob| blob.bytes).sum()
        };
        while self.sending.len() >= AT_ONCE || waiting(&self.sending) + bytes > MOST_WAITING {
            let Some(first) = self.sending.pop_front() else {
                break;
            };
            self.wait_for(first)?;
        }
        let progress = self.progress;
        let sent = Builder::new().spawn_scoped(self.scope, move || {
            let stored = blob.finish()?;
            progress.sent(stored.bytes);
            Ok(stored)
        });
        let sent = sent.map_err(MoveError::io("begin to write", self.place.name().as_ref()))?;
        self.sending.push_back(Sending { bytes, sent });
        Ok(())
    }

    fn growing(&mut self) -> Result<Box<dyn NewBlob + 'p>, OciImageError> {
        self.growing
            .take()
            .map_or_else(|| self.place.new_blob(), Ok)
    }
}

impl NewBlobs for Outgoing<'_, '_> {
    type Error = MoveError;

    fn append(&mut self, bytes: &[u8]) -> Result<(), MoveError> {
        let mut blob = self.growing()?;
        let written = blob.write_all(bytes);
        written.map_err(MoveError::io("write a blob of", self.place.name().as_ref()))?;
        self.growing = Some(blob);
        self.progress.gathered(bytes.len() as u64);
        Ok(())
    }

    fn end(&mut self) -> Result<BlobDigest, MoveError> {
        let blob = self.growing()?;
        let (digest, bytes) = blob.written();
        self.send(blob, bytes)?;
        Ok(*digest.bytes())
    }
}
