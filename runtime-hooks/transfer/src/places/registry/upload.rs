//! New blobs for a registry. It wants a blob's digest with the blob, and may break the connection
//! at any byte: a blob is gathered in a file without a name, and sent from there.

use std::fs::File;
use std::io::{self, Seek, Write};

use stasis_oci_image::digest::Hashed;
use stasis_oci_image::{Digest, OciImageError};
use ureq::SendBody;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use ureq::http::{Method, StatusCode};

use super::connection::{Ask, Connection, Failure};
use crate::places::{NewBlob, StoreOutcome, Stored};

/// For large files that need not survive (file-hierarchy(7)).
const SPOOL: &str = "/var/tmp";
const BYTES: &str = "application/octet-stream";

/// A blob that is not sent yet.
pub(super) struct Upload<'r> {
    connection: &'r Connection,
    spool: Hashed<File>,
}

impl<'r> Upload<'r> {
    pub(super) fn begin(connection: &'r Connection) -> Result<Self, OciImageError> {
        let file = tempfile::tempfile_in(SPOOL);
        let file = file.map_err(OciImageError::io("make a file in", SPOOL.as_ref()))?;
        let spool = Hashed::new(file);
        Ok(Self { connection, spool })
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.spool.write(bytes);
        written.map_err(|error| io::Error::other(OciImageError::io("write", SPOOL.as_ref())(error)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewBlob for Upload<'_> {
    fn written(&self) -> (Digest, u64) {
        self.spool.so_far()
    }

    fn finish(self: Box<Self>) -> Result<Stored, OciImageError> {
        let (digest, bytes, file) = self.spool.end();
        let body = || {
            let mut file = file.try_clone()?;
            file.rewind()?;
            Ok(SendBody::from_owned_reader(file))
        };
        send_if_lacking(self.connection, digest, bytes, body)
    }
}

/// Sends a small blob.
pub(super) fn put(connection: &Connection, bytes: &[u8]) -> Result<Stored, OciImageError> {
    let length = bytes.len() as u64;
    send_if_lacking(connection, Digest::of(bytes), length, || Ok(bytes))
}

fn send_if_lacking<B: ureq::AsSendBody>(
    connection: &Connection,
    digest: Digest,
    bytes: u64,
    body: impl Fn() -> io::Result<B>,
) -> Result<Stored, OciImageError> {
    let mut stored = Stored {
        digest,
        bytes,
        outcome: StoreOutcome::AlreadyStored,
    };
    let action = format!("look for the blob {digest}");
    let found = connection.ask(&Ask::new(Method::HEAD, blob(connection, &digest)), &action)?;
    match found.status() {
        StatusCode::OK => return Ok(stored),
        StatusCode::NOT_FOUND => {}
        _ => return Err(connection.unexpected(&action, found)),
    }
    let action = format!("send the blob {digest}");
    connection.try_again(&action, || send(connection, &digest, bytes, &action, &body))?;
    stored.outcome = StoreOutcome::New;
    Ok(stored)
}

/// In one piece: of one that broke, registries keep nothing that all of them would go on with.
fn send<B: ureq::AsSendBody>(
    connection: &Connection,
    digest: &Digest,
    bytes: u64,
    action: &str,
    body: &impl Fn() -> io::Result<B>,
) -> Result<(), Failure> {
    let begin = Ask::new(Method::POST, connection.url("blobs/uploads/"));
    let begun = connection.once(&begin.with(CONTENT_LENGTH, "0"), || Ok(&[][..]))?;
    if begun.status() != StatusCode::ACCEPTED {
        return Err(Failure::Refused(connection.unexpected(action, begun)));
    }
    let location = begun
        .headers()
        .get(LOCATION)
        .and_then(|location| location.to_str().ok());
    let location = location.and_then(|location| connection.resolve(location));
    let location = location.ok_or_else(|| {
        Failure::Refused(connection.failed(action, "it does not say where to".to_owned()))
    })?;
    let separator = if location.contains('?') { '&' } else { '?' };
    let ask = Ask::new(Method::PUT, format!("{location}{separator}digest={digest}"))
        .with(CONTENT_TYPE, BYTES)
        .with(CONTENT_LENGTH, bytes.to_string());
    let response = connection.once(&ask, body)?;
    match response.status() {
        StatusCode::CREATED => Ok(()),
        _ => Err(Failure::Refused(connection.unexpected(action, response))),
    }
}

fn blob(connection: &Connection, digest: &Digest) -> String {
    connection.url(&format!("blobs/{digest}"))
}
