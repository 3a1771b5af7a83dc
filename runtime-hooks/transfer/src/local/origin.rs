//! Where an image in a directory came from, and where it was pushed: a note beside it, which
//! decides nothing.
//!
//! The note holds for this image alone: it has the hash of `stasis.json`, so that an image which
//! takes its place, in the same directory, has no note.

use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use stasis_engine::image::directory::ORIGIN;
use stasis_engine::image::manifest::FILE_NAME;
use stasis_host::time::rfc3339;
use stasis_linux::file::{self, Access, Durability};

const VERSION: u32 = 1;
const MOST_BYTES: u64 = 64 << 10;
/// The limit of `image::manifest`.
const MOST_MANIFEST_BYTES: u64 = 96 << 20;
/// Only the last ones are kept.
const MOST_PLACES: usize = 8;

/// The places that the image came from and was pushed to.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Where it was pulled from.
    pub pulled: Option<RemoteLocation>,
    /// The places it was pushed to, the last one at the end.
    pub pushed: Vec<RemoteLocation>,
}

/// A place in a registry or an OCI layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLocation {
    /// Its reference there.
    pub reference: String,
    /// The digest of its manifest there.
    pub digest: String,
    /// When, RFC 3339.
    pub time: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    version: u32,
    /// BLAKE3 of its `stasis.json`.
    image: String,
    origin: Origin,
}

impl RemoteLocation {
    /// Makes a place with the current time.
    pub(crate) fn new(reference: String, digest: String) -> Self {
        let time = rfc3339(SystemTime::now());
        Self {
            reference,
            digest,
            time,
        }
    }
}

impl Origin {
    /// Reads the note of the image in a directory. A note with defects counts as none.
    #[must_use]
    pub fn of(image: &Path) -> Option<Self> {
        let text = file::read(&image.join(ORIGIN), MOST_BYTES).ok()??;
        let note: Note = serde_json::from_slice(&text).ok()?;
        let is_its = note.version == VERSION && hash(image)? == note.image;
        is_its.then_some(note.origin)
    }

    /// Notes that it was pulled. A note that cannot be written is no failure of the pull.
    pub(crate) fn note_pulled(image: &Path, from: RemoteLocation) {
        let pulled = Some(from);
        let pushed = Vec::new();
        Self { pulled, pushed }.write(image);
    }

    /// Notes that it was pushed; a note that cannot be written is no failure of the push.
    pub(crate) fn note_pushed(image: &Path, to: RemoteLocation) {
        let mut origin = Self::of(image).unwrap_or_default();
        origin
            .pushed
            .retain(|place| place.reference != to.reference);
        origin.pushed.push(to);
        let spare = origin.pushed.len().saturating_sub(MOST_PLACES);
        origin.pushed.drain(..spare);
        origin.write(image);
    }

    fn write(self, image: &Path) {
        let Some(hash) = hash(image) else { return };
        let note = Note {
            version: VERSION,
            image: hash,
            origin: self,
        };
        let text = serde_json::to_vec(&note).unwrap_or_default();
        let path = image.join(ORIGIN);
        let _ = file::replace(&path, &text, Access::Private, Durability::Volatile);
    }
}

fn hash(image: &Path) -> Option<String> {
    let text = file::read(&image.join(FILE_NAME), MOST_MANIFEST_BYTES).ok()??;
    Some(blake3::hash(&text).to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(reference: &str) -> RemoteLocation {
        RemoteLocation::new(reference.to_owned(), "sha256:0".to_owned())
    }

    #[test]
    fn a_note_is_that_of_one_image() {
        let image = tempfile::tempdir().unwrap();
        let image = image.path();
        fs::write(image.join(FILE_NAME), "one").unwrap();
        assert_eq!(Origin::of(image), None);
        Origin::note_pulled(image, place("a/b:1"));
        for number in 0..10 {
            Origin::note_pushed(image, place(&format!("a/b:{number}")));
        }
        Origin::note_pushed(image, place("a/b:5"));
        let origin = Origin::of(image).unwrap();
        assert_eq!(origin.pulled.unwrap().reference, "a/b:1");
        let pushed: Vec<_> = origin
            .pushed
            .iter()
            .map(|to| to.reference.as_str())
            .collect();
        assert_eq!(pushed.len(), MOST_PLACES);
        assert_eq!(pushed.last(), Some(&"a/b:5"));
        fs::write(image.join(FILE_NAME), "another").unwrap();
        assert_eq!(Origin::of(image), None);
    }

    #[test]
    fn a_note_of_somebody_else_is_none() {
        let image = tempfile::tempdir().unwrap();
        let image = image.path();
        fs::write(image.join(FILE_NAME), "one").unwrap();
        for text in ["", "{", "{}", r#"{"version":1}"#, &" ".repeat(70 << 10)] {
            fs::write(image.join(ORIGIN), text).unwrap();
            assert_eq!(Origin::of(image), None, "{text:.20}");
        }
        fs::remove_file(image.join(ORIGIN)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", image.join(ORIGIN)).unwrap();
        assert_eq!(Origin::of(image), None);
    }
}
