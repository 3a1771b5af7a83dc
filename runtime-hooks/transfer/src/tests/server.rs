//! A registry in memory, with the API used here, that breaks connections, refuses or lies.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use stasis_oci_image::document::manifest::MANIFEST;

use super::*;

/// The fate of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The request of this number is refused, as are all that come after it.
    Refuse(usize),
    /// The connection of each request breaks in the middle of its body, the first time.
    Break,
    /// The blob of this digest is a false one.
    Lie(Lie, Digest),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// By one byte.
    Longer,
    Shorter,
    /// It has its length, and then no end.
    Endless,
    /// It ends too early, again and again.
    Ends,
    /// Other bytes.
    Other,
}

/// The server ends when this is dropped.
pub(crate) struct Server {
    at: SocketAddr,
    state: Arc<State>,
}

type Named = BTreeMap<String, Vec<u8>>;

#[derive(Default)]
struct State {
    blobs: Mutex<Named>,
    manifests: Mutex<Named>,
    fault: Mutex<Option<Fault>>,
    asked: AtomicUsize,
    broken: Mutex<BTreeSet<String>>,
    is_over: AtomicBool,
}

struct Request {
    method: String,
    path: String,
    bytes: usize,
    from: usize,
}

struct Answer {
    status: &'static str,
    headers: String,
    body: Vec<u8>,
    /// The header sent instead of its length.
    framing: Option<&'static str>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&shared);
                // Connections are meant to break.
                thread::spawn(move || shared.serve(&client));
            }
        });
        Self { at, state }
    }

    pub(crate) fn reference(&self, tag: &str) -> Reference {
        let named = format!("http://{}/jobs/one:{tag}", self.at);
        named.parse().unwrap()
    }

    /// Numbers requests anew from 0 on, and lets them break anew.
    pub(crate) fn set(&self, fault: Fault) {
        self.state.broken.lock().unwrap().clear();
        *self.state.fault.lock().unwrap() = Some(fault);
        self.state.asked.store(0, Ordering::Relaxed);
    }

    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn broken(&self) -> usize {
        self.state.broken.lock().unwrap().len()
    }

    pub(crate) fn blobs(&self) -> MutexGuard<'_, Named> {
        self.state.blobs.lock().unwrap()
    }

    pub(crate) fn has_tag(&self, tag: &str) -> bool {
        self.state.manifests.lock().unwrap().contains_key(tag)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        // This ends the wait for a client.
        let _ = TcpStream::connect(self.at);
    }
}

impl State {
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(client);
        while let Some(request) = Request::read(&mut reader)? {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            let fault = self.fault.lock().unwrap().clone();
            let breaks = fault == Some(Fault::Break) && self.is_first(&request);
            if breaks && request.bytes > 0 {
                let mut half = (&mut reader).take(request.bytes as u64 / 2);
                io::copy(&mut half, &mut io::sink())?;
                return Ok(());
            }
            let mut body = vec![0; request.bytes];
            reader.read_exact(&mut body)?;
            let mut answer = match fault {
                Some(Fault::Refuse(from)) if number >= from => Answer::of("400 Bad Request"),
                _ => self.answer(&request, body),
            };
            if let Some(Fault::Lie(lie, digest)) = &fault
                && request.method == "GET"
                && request.path.ends_with(&digest.to_string())
            {
                answer.lie(*lie);
            }
            if !answer.send(client, &request, breaks)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns whether it is the first of its kind that has a body, or asks for one.
    fn is_first(&self, request: &Request) -> bool {
        let has_body = request.bytes > 0 || request.method == "GET";
        let what = format!("{} {}", request.method, request.path);
        has_body && self.broken.lock().unwrap().insert(what)
    }

    fn answer(&self, request: &Request, body: Vec<u8>) -> Answer {
        let (rest, last) = request.path.rsplit_once('/').unwrap();
        match (request.method.as_str(), rest.rsplit_once('/').unwrap().1) {
            ("POST", _) => Answer {
                headers: "Location: /v2/jobs/one/blobs/uploads/1\r\n".to_owned(),
                ..Answer::of("202 Accepted")
            },
            ("PUT", "uploads") => {
                let digest = last.rsplit_once("digest=").unwrap().1;
                let found = Digest::of(&body).to_string();
                if found != digest {
                    return Answer::of("400 Bad Request");
                }
                self.blobs.lock().unwrap().insert(found, body);
                Answer::of("201 Created")
            }
            ("PUT", "manifests") => {
                let digest = Digest::of(&body).to_string();
                let mut manifests = self.manifests.lock().unwrap();
                manifests.insert(digest, body.clone());
                manifests.insert(last.to_owned(), body);
                Answer::of("201 Created")
            }
            (_, "manifests") => {
                let found = self.manifests.lock().unwrap().get(last).cloned();
                Answer::with(found, request, &format!("Content-Type: {MANIFEST}\r\n"))
            }
            (_, "blobs") => {
                let found = self.blobs.lock().unwrap().get(last).cloned();
                Answer::with(found, request, "")
            }
            _ => Answer::with(Some(br#"{"tags":[]}"#.to_vec()), request, ""),
        }
    }
}

impl Request {
    /// Reads a request; `None`: there is no further one.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if from.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut words = lines[0].split(' ').map(str::to_owned);
        let number = |header: &str| {
            let of_header = |line: &String| {
                let (name, value) = line.split_once(": ")?;
                let digits = value.trim_start_matches("bytes=").trim_end_matches('-');
                let is_it = name.eq_ignore_ascii_case(header);
                is_it.then(|| digits.parse().unwrap())
            };
            lines.iter().find_map(of_header).unwrap_or(0)
        };
        Ok(Some(Self {
            method: words.next().unwrap(),
            path: words.next().unwrap(),
            bytes: number("content-length"),
            from: number("range"),
        }))
    }
}

impl Answer {
    fn of(status: &'static str) -> Self {
        Self {
            status,
            headers: String::new(),
            body: Vec::new(),
            framing: None,
        }
    }

    fn with(found: Option<Vec<u8>>, request: &Request, headers: &str) -> Self {
        let Some(mut body) = found else {
            return Self::of("404 Not Found");
        };
        let mut answer = Self::of("200 OK");
        answer.headers.push_str(headers);
        if request.from > 0 {
            let (from, last) = (request.from, body.len() - 1);
            answer.status = "206 Partial Content";
            answer.headers = format!("Content-Range: bytes {from}-{last}/*\r\n");
            body.drain(..from);
        }
        answer.body = body;
        answer
    }

    fn lie(&mut self, lie: Lie) {
        match lie {
            Lie::Longer => self.body.push(0),
            Lie::Shorter => drop(self.body.pop()),
            Lie::Endless => self.framing = Some("Transfer-Encoding: chunked\r\n"),
            Lie::Ends => {
                self.body.truncate(1);
                self.framing = Some("Connection: close\r\n");
            }
            Lie::Other => self.body.iter_mut().for_each(|byte| *byte ^= 1),
        }
    }

    /// Sends the answer; `true`: the connection can be used again.
    fn send(&self, mut to: &TcpStream, request: &Request, breaks: bool) -> io::Result<bool> {
        let length = format!("Content-Length: {}\r\n", self.body.len());
        let framing = self.framing.unwrap_or(&length);
        let (status, headers) = (self.status, &self.headers);
        to.write_all(format!("HTTP/1.1 {status}\r\n{headers}{framing}\r\n").as_bytes())?;
        if request.method == "HEAD" {
            return Ok(true);
        }
        let bytes = self.body.len() / if breaks { 2 } else { 1 };
        if self
            .framing
            .is_some_and(|framing| framing.starts_with("Transfer"))
        {
            let other: Vec<u8> = self.body.iter().map(|byte| byte ^ 1).collect();
            let head = format!("{:x}\r\n", other.len());
            loop {
                // Until the client stops reading.
                to.write_all(head.as_bytes())?;
                to.write_all(&other)?;
                to.write_all(b"\r\n")?;
            }
        }
        to.write_all(&self.body[..bytes])?;
        Ok(!breaks && self.framing.is_none())
    }
}
