//! Tests against a server of a few lines, which breaks connections and may not know ranges.

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use stasis_oci_image::Digest;

use super::*;
use crate::places::{Elsewhere, Registry};

const CONTENTS: &[u8] = b"0123456789abcdef";

/// The treatment of a range by the server of one blob.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ranges {
    Known,
    Ignored,
}

struct Server {
    registry: Registry,
    blob: Descriptor,
    /// The offset of each request for the blob.
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Server {
    /// Starts a server that sends no more than `most` bytes of the blob in each answer.
    fn start(ranges: Ranges, most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("http://{}/one", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) > 0 {
                    head.push(byte[0]);
                }
                let from = range_of(&head);
                noted.lock().unwrap().push(from);
                let from = if ranges == Ranges::Known { from } else { 0 };
                let end = CONTENTS.len().min(from + most);
                let _ = write!(client, "{}Connection: close\r\n\r\n", head_from(from));
                let _ = client.write_all(&CONTENTS[from..end]);
            }
        });
        Self {
            registry: Registry::open(name.parse().unwrap(), None).unwrap(),
            blob: Descriptor::new("", Digest::of(CONTENTS), CONTENTS.len() as u64),
            asked,
        }
    }

    fn read_from(&self, at: u64) -> Vec<u8> {
        let mut read = Vec::new();
        let mut reader = self.registry.reader(&self.blob, at).unwrap();
        reader.read_to_end(&mut read).unwrap();
        read
    }

    fn asked(&self) -> Vec<usize> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn range_of(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_lowercase();
    let range = head
        .lines()
        .find_map(|line| line.strip_prefix("range: bytes="));
    range.map_or(0, |range| range.trim_end_matches('-').parse().unwrap())
}

fn head_from(from: usize) -> String {
    let (all, left) = (CONTENTS.len(), CONTENTS.len() - from);
    match from {
        0 => format!("HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n"),
        _ => format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{}/{all}\r\n\
             Content-Length: {left}\r\n",
            all - 1
        ),
    }
}

#[test]
fn a_blob_goes_on_behind_what_is_there() {
    for ranges in [Ranges::Known, Ranges::Ignored] {
        let server = Server::start(ranges, CONTENTS.len());
        assert_eq!(server.read_from(0), CONTENTS);
        assert_eq!(server.asked(), [0]);
        assert_eq!(server.read_from(6), &CONTENTS[6..]);
        assert_eq!(server.asked(), [6]);
        // Nothing is left to ask for.
        assert_eq!(server.read_from(CONTENTS.len() as u64), b"");
        assert!(server.asked().is_empty());
    }
}

#[test]
fn where_a_connection_breaks_counts_from_what_was_there() {
    let server = Server::start(Ranges::Known, 4);
    assert_eq!(server.read_from(6), &CONTENTS[6..]);
    assert_eq!(server.asked(), [6, 10, 14]);
}
