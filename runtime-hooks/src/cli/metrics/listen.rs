//! A page that Prometheus can ask for, by HTTP. One request is answered at a time, within a
//! deadline: who is slow, or says too much, is cut off.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// For the request, and again for the answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// A longer head is nobody's.
const MOST_BYTES: usize = 8192;
const PAGE: &str = "/metrics";
/// Of the text format.
const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where to listen: the metrics name containers, so nobody else on the network may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A socket in the file system, which root alone may use.
    Socket(PathBuf),
    /// A port on a loopback address.
    Port(SocketAddr),
}

/// A text that names no such place.
#[derive(Debug, thiserror::Error)]
#[error(
    "write the path of a socket (/run/stasis/metrics.sock), or a loopback address with a port \
         (127.0.0.1:9836)"
)]
pub(super) struct InvalidAddress;

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('/') {
            return Ok(Self::Socket(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Port(address)),
            _ => Err(InvalidAddress),
        }
    }
}

/// Answers requests with what `page` makes at each, until the program is ended.
///
/// # Errors
/// It cannot listen, or no longer.
pub(super) fn serve(address: &Address, page: impl Fn() -> String) -> io::Result<()> {
    match address {
        Address::Socket(path) => {
            remove_unless_used(path)?;
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            each(|| Ok(listener.accept()?.0), &page)
        }
        Address::Port(address) => {
            let listener = TcpListener::bind(address)?;
            each(|| Ok(listener.accept()?.0), &page)
        }
    }
}

/// What a killed one has left.
fn remove_unless_used(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refuses = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).is_err_and(|error| refuses(&error)) {
        fs::remove_file(path)?;
    }
    Ok(())
}

fn each<P: Peer>(accept: impl Fn() -> io::Result<P>, page: &impl Fn() -> String) -> io::Result<()> {
    loop {
        match accept() {
            // Who has gone, or is too slow, has no answer, and the next one is served.
            Ok(mut peer) => drop(answer(&mut peer, DEADLINE, page)),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Who asks.
trait Peer: Read + Write {
    /// Limits each of the next calls.
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Peer for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Peer for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

fn answer(peer: &mut impl Peer, time: Duration, page: &impl Fn() -> String) -> io::Result<()> {
    let head = head(peer, Instant::now() + time)?;
    let (status, kind, body) = match asked_for(&head) {
        Asked::Page => ("200 OK", TYPE, page()),
        Asked::Other => ("404 Not Found", "text/plain", format!("see {PAGE}\n")),
        Asked::Nothing => ("400 Bad Request", "text/plain", format!("GET {PAGE}\n")),
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    write(peer, text.as_bytes(), Instant::now() + time)
}

/// The request up to its empty line.
fn head(peer: &mut impl Peer, until: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MOST_BYTES {
        peer.limit(left(until)?)?;
        match peer.read(&mut part)? {
            0 => break,
            read => head.extend_from_slice(&part[..read]),
        }
    }
    Ok(head)
}

fn write(peer: &mut impl Peer, mut text: &[u8], until: Instant) -> io::Result<()> {
    while !text.is_empty() {
        peer.limit(left(until)?)?;
        match peer.write(text)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => text = &text[written..],
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.checked_duration_since(Instant::now());
    let left = left.filter(|left| !left.is_zero());
    left.ok_or_else(|| ErrorKind::TimedOut.into())
}

/// What a request is for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Page,
    Other,
    /// It is no request that is understood.
    Nothing,
}

fn asked_for(head: &[u8]) -> Asked {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    match words.as_slice() {
        [b"GET", path, version] if version.starts_with(b"HTTP/1.") => {
            let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            if path == PAGE.as_bytes() {
                Asked::Page
            } else {
                Asked::Other
            }
        }
        _ => Asked::Nothing,
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Port(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
