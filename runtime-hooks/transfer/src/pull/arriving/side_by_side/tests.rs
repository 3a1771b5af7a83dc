//! Against a small registry that closes each connection after a part of the blob.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use stasis_memory_store::{pack_header, pack_of};
use stasis_oci_image::Digest;

use super::*;

/// The bytes of each answer: far fewer of them are read than a blob may break.
const MOST: usize = 100;
const BLOB: usize = 4096;

/// Answers with a part of this blob, from the offset asked for; returns the image's name.
fn registry(blob: Vec<u8>) -> Reference {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let range = head
                .lines()
                .find_map(|line| line.strip_prefix("range: bytes="));
            let from = range.map(|range| range.trim_end_matches('-').parse::<usize>().unwrap());
            let from = from.unwrap_or(0);
            let (status, left) = (if from > 0 { 206 } else { 200 }, BLOB - from);
            let _ = write!(
                client,
                "HTTP/1.1 {status} Some\r\nContent-Range: bytes {from}-{}/{BLOB}\r\n\
                 Content-Length: {left}\r\nConnection: close\r\n\r\n",
                BLOB - 1
            );
            let _ = client.write_all(&blob[from..BLOB.min(from + MOST)]);
        }
    });
    format!("http://{address}/one:1").parse().unwrap()
}

#[test]
fn a_registry_that_is_lost_again_and_again_is_waited_for() {
    let image = tempfile::tempdir().unwrap();
    let contents: Vec<u8> = (0..BLOB).map(|at| u8::try_from(at / 16).unwrap()).collect();
    let blob = Descriptor::new("", Digest::of(&contents), BLOB as u64);
    let pack = pack_of(blob.digest.bytes(), blob.size).unwrap();
    let path = image.path().join(pack.file_name());
    fs::write(&path, [&pack_header(&pack)[..], &contents[..10]].concat()).unwrap();
    let source = Source {
        reference: registry(contents.clone()),
        authfile: None,
        stalled: Duration::from_secs(60),
    };
    let found = fetch_all(image.path().to_owned(), vec![(pack, blob)], source).unwrap();
    assert_eq!((found.blobs, found.bytes), (0, 10));
    let expected = [pack_header(&pack), contents].concat();
    assert_eq!(fs::read(&path).unwrap(), expected);
}
