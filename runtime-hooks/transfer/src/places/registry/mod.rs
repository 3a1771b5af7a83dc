//! A repository of a registry, as OCI's distribution specification describes it.
//!
//! The registry is not trusted: every answer has its limits, and its digest is compared.

mod answer;
mod authorization;
mod challenge;
mod connection;
mod credentials;
mod download;
mod roots;
pub(crate) mod tagged;
mod upload;

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use stasis_oci_image::RepositoryName;
use stasis_oci_image::document::index::INDEX;
use stasis_oci_image::document::manifest::{MANIFEST, MOST_MANIFEST_BYTES};
use stasis_oci_image::{Descriptor, Digest, Manifest, OciImageError};
use ureq::http::header::{ACCEPT, CONTENT_TYPE};
use ureq::http::{Method, StatusCode};

use crate::places::{Elsewhere, NewBlob, Stored};
use answer::MOST_TAGS;
use connection::{Ask, Connection};
use credentials::Credentials;
use download::Download;
use upload::Upload;

/// The header with the registry's digest of its answer.
const DIGEST: &str = "docker-content-digest";

/// The media types of container images: of OCI, and of Docker.
const IMAGES: [&str; 4] = [
    MANIFEST,
    INDEX,
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];

/// A repository.
#[derive(Debug)]
pub(crate) struct Registry {
    connection: Connection,
}

impl Registry {
    /// Prepares requests, with credentials of a file, or of those that podman and Docker keep.
    pub(crate) fn open(
        name: RepositoryName,
        credentials: Option<&Path>,
    ) -> Result<Self, OciImageError> {
        let credentials = Credentials::find(&name, credentials)?;
        let connection = Connection::new(name, credentials)?;
        Ok(Self { connection })
    }

    /// Sends no request after this moment, and then waits for no answer any more.
    #[must_use]
    pub(crate) fn until(mut self, end: Instant) -> Self {
        self.connection.end = Some(end);
        self
    }

    /// Reads a document of one of these types, by its tag or digest.
    fn document(&self, tag: &str, types: &[&str]) -> Result<(Vec<u8>, Descriptor), OciImageError> {
        let action = format!("read the manifest of {tag}");
        let ask = Ask::new(
            Method::GET,
            self.connection.url(&format!("manifests/{tag}")),
        );
        let ask = ask.with(ACCEPT, types.join(", "));
        let most = MOST_MANIFEST_BYTES;
        let found = self.connection.ask_for_document(&ask, &action, most)?;
        let (headers, text) = found.ok_or_else(|| OciImageError::NoTag {
            place: self.name(),
            tag: tag.to_owned(),
        })?;
        let header = |name| headers.get(name)?.to_str().ok();
        let said = header(DIGEST);
        let media_type = header(CONTENT_TYPE.as_str()).unwrap_or_default();
        let digest = Digest::of(&text);
        let refused = |what| OciImageError::document(format!("the manifest of {tag}"), what);
        if said.is_some_and(|said| said != digest.to_string()) {
            return Err(refused(
                "its bytes have another digest than the registry says",
            ));
        }
        if tag.parse().is_ok_and(|asked: Digest| asked != digest) {
            return Err(refused("its bytes have another digest"));
        }
        let media_type = types.iter().find(|known| **known == media_type);
        let media_type = media_type.ok_or_else(|| refused("it is none of an image"))?;
        let found = Descriptor::new(media_type, digest, text.len() as u64);
        Ok((text, found))
    }

    fn put_manifest(&self, tag: &str, text: &[u8]) -> Result<Digest, OciImageError> {
        let action = format!("write the manifest of {tag}");
        let url = self.connection.url(&format!("manifests/{tag}"));
        let ask = Ask::new(Method::PUT, url).with(CONTENT_TYPE, MANIFEST);
        let send = || self.connection.once(&ask, || Ok(text));
        let response = self.connection.try_again(&action, send)?;
        match response.status() {
            StatusCode::CREATED => Ok(Digest::of(text)),
            _ => Err(self.connection.unexpected(&action, response)),
        }
    }

    fn tags(&self) -> Result<Vec<String>, OciImageError> {
        let action = "list the tags";
        let ask = Ask::new(Method::GET, self.connection.url("tags/list"));
        match self.connection.ask_for_document(&ask, action, MOST_TAGS)? {
            // A repository begins with its first image.
            None => Ok(Vec::new()),
            Some((_, text)) => {
                let tags = answer::tags(&text);
                tags.map_err(|what| self.connection.failed(action, what))
            }
        }
    }
}

impl Elsewhere for Registry {
    fn name(&self) -> String {
        self.connection.name.to_string()
    }

    fn manifest(&self, tag: &str) -> Result<(Manifest, Digest), OciImageError> {
        let (text, found) = self.document(tag, &[MANIFEST])?;
        let manifest = Manifest::from_text(&text, &found.digest.to_string())?;
        Ok((manifest, found.digest))
    }

    fn describe(&self, tag: &str) -> Result<Descriptor, OciImageError> {
        Ok(self.document(tag, &IMAGES)?.1)
    }

    fn images(&self, tag: &str, most: usize) -> Result<Vec<Manifest>, OciImageError> {
        let mut tags = self.tags()?;
        tags.retain(|one| one != tag);
        // Tags that are counters or dates are in their order.
        let others = tags.iter().rev().map(String::as_str);
        let likely = std::iter::once(tag).chain(others).take(most);
        Ok(likely
            .filter_map(|tag| Some(self.manifest(tag).ok()?.0))
            .collect())
    }

    /// A missing blob is reported when it is read.
    fn expect(&self, _: &Manifest) -> Result<(), OciImageError> {
        Ok(())
    }

    /// A registry takes no manifest if it lacks one of its blobs.
    fn still_has(&self, _: &Digest, _: u64) -> bool {
        true
    }

    fn reader(&self, blob: &Descriptor, at: u64) -> Result<Box<dyn Read + '_>, OciImageError> {
        Ok(Box::new(Download::begin(&self.connection, blob, at)?))
    }

    fn new_blob(&self) -> Result<Box<dyn NewBlob + '_>, OciImageError> {
        Ok(Box::new(Upload::begin(&self.connection)?))
    }

    fn put(&self, bytes: &[u8]) -> Result<Stored, OciImageError> {
        upload::put(&self.connection, bytes)
    }

    fn tag(&self, tag: &str, manifest: &Manifest) -> Result<Digest, OciImageError> {
        self.put_manifest(tag, &manifest.to_text()?)
    }
}

#[cfg(test)]
mod tests;
