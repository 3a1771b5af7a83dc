//! A download of a blob: over another connection where one breaks, from where it broke.

use std::io::{self, Read};

use stasis_oci_image::{Descriptor, OciImageError};
use ureq::http::header::{CONTENT_RANGE, RANGE};
use ureq::http::{Method, Response, StatusCode};
use ureq::{Body, BodyReader};

use super::connection::{Ask, Connection, Failure};

/// A registry that breaks more connections than this for one blob does not want to give it.
const MOST_BREAKS: u32 = 16;

/// A download of a blob.
pub(super) struct Download<'r> {
    connection: &'r Connection,
    blob: Descriptor,
    /// The number of bytes that have come, or existed before.
    at: u64,
    breaks: u32,
    body: Option<BodyReader<'static>>,
}

impl<'r> Download<'r> {
    /// Begins the download after the first `at` bytes.
    pub(super) fn begin(
        connection: &'r Connection,
        blob: &Descriptor,
        at: u64,
    ) -> Result<Self, OciImageError> {
        let mut download = Self {
            connection,
            blob: blob.clone(),
            at: at.min(blob.size),
            breaks: 0,
            body: None,
        };
        // No registry answers a range without bytes.
        if download.at < blob.size {
            download.body = Some(download.open()?);
        }
        Ok(download)
    }

    /// Requests the rest of the blob.
    fn open(&self) -> Result<BodyReader<'static>, OciImageError> {
        let action = format!("read the blob {}", self.blob.digest);
        let url = self.connection.url(&format!("blobs/{}", self.blob.digest));
        let mut ask = Ask::new(Method::GET, url);
        if self.at > 0 {
            ask = ask.with(RANGE, format!("bytes={}-", self.at));
        }
        self.connection.try_again(&action, || {
            let response = self.connection.once(&ask, || Ok(()))?;
            self.rest_of(response, &action)
        })
    }

    fn rest_of(
        &self,
        response: Response<Body>,
        action: &str,
    ) -> Result<BodyReader<'static>, Failure> {
        let from = match response.status() {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT if is_from(&response, self.at) => self.at,
            StatusCode::NOT_FOUND => return Err(Failure::Refused(self.missing())),
            _ => {
                let error = self.connection.unexpected(action, response);
                return Err(Failure::Refused(error));
            }
        };
        let expected = self.blob.size - from;
        let length = response.body().content_length();
        if let Some(length) = length.filter(|length| *length != expected) {
            let what = format!("it has {length} bytes, and should have {expected}");
            return Err(Failure::Refused(OciImageError::blob(
                self.blob.digest,
                what,
            )));
        }
        let body = response.into_body().into_with_config();
        let mut body = body.limit(u64::MAX).reader();
        // Not every registry knows ranges.
        let skipped = io::copy(&mut (&mut body).take(self.at - from), &mut io::sink());
        let skipped = skipped.map_err(|error| Failure::Broken(error.to_string()))?;
        match skipped == self.at - from {
            true => Ok(body),
            false => Err(Failure::Broken("the blob ends too early".to_owned())),
        }
    }

    fn missing(&self) -> OciImageError {
        OciImageError::NoBlob {
            place: self.connection.name.to_string(),
            digest: self.blob.digest,
        }
    }

    fn broke(&mut self, what: String) -> io::Result<()> {
        self.body = None;
        self.breaks += 1;
        if self.breaks > MOST_BREAKS {
            let action = format!("read the blob {}", self.blob.digest);
            return Err(io::Error::other(self.connection.failed(&action, what)));
        }
        self.body = Some(self.open().map_err(io::Error::other)?);
        Ok(())
    }
}

fn is_from(response: &Response<Body>, at: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE);
    let range = range.and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {at}-")))
}

impl Read for Download<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.blob.size - self.at;
        let most = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        if most == 0 {
            return Ok(0);
        }
        loop {
            let read = self.body.as_mut().map(|body| body.read(&mut into[..most]));
            match read {
                Some(Ok(read)) if read > 0 => {
                    self.at += read as u64;
                    return Ok(read);
                }
                Some(Err(error)) => self.broke(error.to_string())?,
                Some(Ok(_)) | None => self.broke("it ends too early".to_owned())?,
            }
        }
    }
}

#[cfg(test)]
mod tests;
