//! Access to images elsewhere, whether in a directory or behind a registry.

use std::io::{Read, Write};

use stasis_oci_image::{Descriptor, Digest, Manifest, OciImageError};

/// A place with images of ours.
pub(crate) trait Elsewhere: Sync {
    /// Returns its name for messages.
    fn name(&self) -> String;

    /// Returns the manifest of a tag or digest, and its digest.
    fn manifest(&self, tag: &str) -> Result<(Manifest, Digest), OciImageError>;

    /// Describes the image of a tag or digest, be it ours or another's.
    fn describe(&self, tag: &str) -> Result<Descriptor, OciImageError>;

    /// Returns at most `most` images of ours that exist there, likely to share parts with a new one
    /// for the tag. Skips images that cannot be read.
    fn images(&self, tag: &str, most: usize) -> Result<Vec<Manifest>, OciImageError>;

    /// Checks that the blobs of an image exist, as far as that costs little.
    fn expect(&self, image: &Manifest) -> Result<(), OciImageError>;

    /// Returns whether a blob that an image named still exists, undamaged.
    fn still_has(&self, digest: &Digest, bytes: u64) -> bool;

    /// Reads a blob from byte `at` on, and no more than its length. The caller has to compare the
    /// digest.
    fn reader(&self, blob: &Descriptor, at: u64) -> Result<Box<dyn Read + '_>, OciImageError>;

    /// Begins a blob.
    fn new_blob(&self) -> Result<Box<dyn NewBlob + '_>, OciImageError>;

    /// Adds a small blob.
    fn put(&self, bytes: &[u8]) -> Result<Stored, OciImageError>;

    /// Adds a manifest whose blobs all exist, under a tag that another may have had. If it fails,
    /// the tag stays as it was.
    fn tag(&self, tag: &str, manifest: &Manifest) -> Result<Digest, OciImageError>;

    /// Reads all of a blob, and verifies it.
    fn read(&self, blob: &Descriptor, most: u64) -> Result<Vec<u8>, OciImageError> {
        if blob.size > most {
            let what = format!("it has {} bytes, and may have {most}", blob.size);
            return Err(OciImageError::blob(blob.digest, what));
        }
        let mut bytes = Vec::new();
        let read = self.reader(blob, 0)?.read_to_end(&mut bytes);
        read.map_err(|error| OciImageError::of_io(error, "read a blob of", self.name().as_ref()))?;
        match Digest::of(&bytes) == blob.digest {
            true => Ok(bytes),
            false => Err(OciImageError::blob(
                blob.digest,
                "its bytes have another digest",
            )),
        }
    }
}

/// A blob that is being written. Dropping it before it is finished removes it.
pub(crate) trait NewBlob: Write + Send {
    /// Returns the digest and length of the bytes that were written.
    fn written(&self) -> (Digest, u64);

    /// Completes the blob, and names it.
    fn finish(self: Box<Self>) -> Result<Stored, OciImageError>;
}

/// A stored blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Its name.
    pub(crate) digest: Digest,
    /// Its length.
    pub(crate) bytes: u64,
    /// Whether it was new.
    pub(crate) outcome: StoreOutcome,
}

/// The outcome of storing a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreOutcome {
    /// It was stored already.
    AlreadyStored,
    /// It was stored now.
    New,
}
