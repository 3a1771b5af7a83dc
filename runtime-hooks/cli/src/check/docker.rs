//! Asks Docker's daemon whether it has checkpoints.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use stasis_host::deadline::within;
use stasis_linux::{ProcessRef, file};

const SOCKET: &str = "/run/docker.sock";
const PID_FILE: &str = "/run/docker.pid";
/// A healthy daemon answers in some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST_BYTES: u64 = 4096;
/// The header of every answer of its API.
const HEADER: &str = "docker-experimental:";

/// Returns the daemon if it has no checkpoints; `None` if it has them, or does not say.
pub(super) fn without_checkpoints() -> Option<ProcessRef> {
    if has_checkpoints(Path::new(SOCKET))? {
        return None;
    }
    let pid = file::read(Path::new(PID_FILE), MOST_BYTES).ok()??;
    let pid = std::str::from_utf8(&pid).ok()?.trim().parse().ok()?;
    ProcessRef::open(pid).ok()?
}

fn has_checkpoints(socket: &Path) -> Option<bool> {
    let socket = socket.to_owned();
    let answer = within(PATIENCE, move || {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"GET /_ping HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut answer)?;
        std::io::Result::Ok(answer)
    });
    is_experimental(&String::from_utf8_lossy(&answer.ok()?.ok()?))
}

fn is_experimental(answer: &str) -> Option<bool> {
    let head = answer.split("\r\n\r\n").next()?.to_ascii_lowercase();
    let value = head.lines().find_map(|line| line.strip_prefix(HEADER))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn the_daemon_is_asked_once_and_a_stranger_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("docker.sock");
        assert_eq!(has_checkpoints(&socket), None);
        let listener = UnixListener::bind(&socket).unwrap();
        let ask = |answer: &'static str| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut request = [0; 64];
                    let length = stream.read(&mut request).unwrap();
                    assert!(request[..length].starts_with(b"GET /_ping "));
                    stream.write_all(answer.as_bytes()).unwrap();
                });
                has_checkpoints(&socket)
            })
        };
        let head = "HTTP/1.0 200 OK\r\nServer: Docker/28\r\nDocker-Experimental: ";
        for (value, expected) in [("true", Some(true)), ("false", Some(false)), ("2", None)] {
            let answer = format!("{head}{value}\r\n\r\nOK").leak();
            assert_eq!(ask(answer), expected);
        }
        assert_eq!(
            ask("HTTP/1.0 200 OK\r\n\r\nDocker-Experimental: true"),
            None
        );
        assert_eq!(ask(""), None);
    }
}
