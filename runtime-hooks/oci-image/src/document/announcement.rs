//! The document of a tag whose next image is being made: a puller that wants that image waits for
//! it, and does not take the one before.
//!
//! The document is a manifest without contents, so that every registry keeps it. It expires: the
//! process that makes the image renews it again and again.

use super::annotations::CREATED;
use super::descriptor::Descriptor;
use super::manifest::{MANIFEST, Manifest, SCHEMA};
use super::parse;
use crate::{Digest, OciImageError};

/// The type that distinguishes it from an image.
pub(crate) const AWAITED: &str = "application/vnd.stasis.checkpoint.awaited.v1";
/// For manifests without contents (OCI image specification, "Guidance for an Empty Descriptor").
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// The contents of such a blob.
pub const EMPTY_BLOB: &[u8] = b"{}";
const IMAGE: &str = "io.stasis.awaited.image";
const HOST: &str = "io.stasis.awaited.host";
const UNTIL: &str = "io.stasis.awaited.until";
const BEFORE: &str = "io.stasis.awaited.before";
/// More than names of hosts and images have, in bytes.
const MOST_NAME: usize = 255;

/// An image that is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The name of the image.
    pub image: String,
    /// The host that makes it.
    pub host: String,
    /// The beginning of the work, RFC 3339.
    pub since: String,
    /// The expiry of the announcement unless it is renewed, Unix time in seconds.
    pub until: u64,
    /// The image that had the tag.
    pub before: Option<Digest>,
}

impl Announcement {
    /// Returns whether both announce the same image, renewed or not.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.image, &self.host) == (&other.image, &other.host)
    }

    /// Writes the document.
    pub fn to_text(&self) -> Vec<u8> {
        let empty = || Descriptor::new(EMPTY, Digest::of(EMPTY_BLOB), EMPTY_BLOB.len() as u64);
        let before = self.before.map(|digest| (BEFORE, digest.to_string()));
        let said = [
            (IMAGE, self.image.clone()),
            (HOST, self.host.clone()),
            (CREATED, self.since.clone()),
            (UNTIL, self.until.to_string()),
        ];
        let said = said.into_iter().chain(before);
        let document = Manifest {
            schema_version: SCHEMA,
            media_type: MANIFEST.to_owned(),
            artifact_type: AWAITED.to_owned(),
            config: empty(),
            layers: vec![empty()],
            subject: None,
            annotations: said.map(|(name, text)| (name.to_owned(), text)).collect(),
        };
        // The document consists of texts and numbers alone.
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// Reads an untrusted document; `None` if it is a manifest of something else.
    ///
    /// # Errors
    /// [`OciImageError::Document`]: it is an announcement, and malformed.
    pub fn from_text(text: &[u8]) -> Result<Option<Self>, OciImageError> {
        let refused = |what: String| OciImageError::document("what awaits an image", what);
        let Ok(document) = parse::<Manifest>(text) else {
            return Ok(None);
        };
        if document.artifact_type != AWAITED {
            return Ok(None);
        }
        let said = |name: &str| document.annotations.get(name).cloned();
        let name = |name: &str| {
            let text = said(name).filter(|text| is_name(text));
            text.ok_or_else(|| refused(format!("its annotation {name} is missing, or no name")))
        };
        let until = said(UNTIL).and_then(|until| until.parse().ok());
        let before = said(BEFORE).map(|digest| digest.parse()).transpose();
        Ok(Some(Self {
            image: name(IMAGE)?,
            host: name(HOST)?,
            since: name(CREATED)?,
            until: until.ok_or_else(|| refused(format!("its annotation {UNTIL} is no time")))?,
            before: before.map_err(|_| refused(format!("its annotation {BEFORE} is no digest")))?,
        }))
    }
}

/// Checks a name, which is shown to people.
fn is_name(text: &str) -> bool {
    let is_shown = |byte: u8| byte.is_ascii_graphic();
    !text.is_empty() && text.len() <= MOST_NAME && text.bytes().all(is_shown)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn announcement() -> Announcement {
        Announcement {
            image: "2026-11-25T22:00:00.000Z-stop".to_owned(),
            host: "a1".to_owned(),
            since: "2026-11-25T22:00:00Z".to_owned(),
            until: 1_795_650_000,
            before: Some(Digest::of(b"before")),
        }
    }

    #[test]
    fn it_reads_as_it_is_written() {
        for before in [None, Some(Digest::of(b"before"))] {
            let said = Announcement {
                before,
                ..announcement()
            };
            let read = Announcement::from_text(&said.to_text()).unwrap();
            assert_eq!(read.as_ref(), Some(&said));
            assert!(said.is_of(&announcement()));
        }
    }

    #[test]
    fn what_is_something_else_is_none_and_what_is_odd_is_refused() {
        assert_eq!(Announcement::from_text(b"{}").unwrap(), None);
        let text = String::from_utf8(announcement().to_text()).unwrap();
        let other = text.replace(AWAITED, "application/vnd.example");
        assert_eq!(Announcement::from_text(other.as_bytes()).unwrap(), None);
        let long = "a".repeat(MOST_NAME + 1);
        for (name, odd) in [
            (IMAGE, "a\nb"),
            (HOST, ""),
            (HOST, long.as_str()),
            (UNTIL, "soon"),
            (BEFORE, "sha256:0"),
        ] {
            let mut document: Value = serde_json::from_str(&text).unwrap();
            document["annotations"][name] = odd.into();
            let read = Announcement::from_text(document.to_string().as_bytes());
            read.unwrap_err();
        }
    }
}
