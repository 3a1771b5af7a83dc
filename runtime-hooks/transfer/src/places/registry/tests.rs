//! The password goes to the registry alone, whatever other address that names.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::*;

/// "user:secret"
const PASSWORD: &str = "dXNlcjpzZWNyZXQ=";
const ASKS: &str = "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"any\"";

/// A server that reports the head of each request, in lower case, and how it answers.
struct Server {
    at: String,
    heads: Receiver<String>,
}

impl Server {
    fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let (report, heads) = channel();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A client that goes away is what some requests end with.
                let _ = serve(&client, &report, &answer);
            }
        });
        Self { at, heads }
    }

    fn heads(&self) -> String {
        self.heads.try_iter().collect()
    }
}

fn serve(
    mut client: &TcpStream,
    report: &Sender<String>,
    answer: &impl Fn(&str) -> String,
) -> io::Result<()> {
    let mut reader = BufReader::new(client);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line)? > 2 {
        head.push_str(&line.to_lowercase());
        line.clear();
    }
    let length = head.split_once("content-length: ").map(|(_, rest)| rest);
    let length = length.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    io::copy(&mut reader.take(length.unwrap_or(0)), &mut io::sink())?;
    let answer = answer(&head);
    let _ = report.send(head);
    let end = "Content-Length: 0\r\nConnection: close";
    client.write_all(format!("HTTP/1.1 {answer}\r\n{end}\r\n\r\n").as_bytes())
}

/// Opens a repository of this server, for which there are credentials.
fn opened(server: &Server) -> Registry {
    let credentials = tempfile::NamedTempFile::new().unwrap();
    let (at, path) = (&server.at, credentials.path());
    let text = serde_json::json!({"auths": {at: {"auth": PASSWORD}}});
    fs::write(path, text.to_string()).unwrap();
    let name = format!("http://{at}/jobs/one").parse().unwrap();
    Registry::open(name, Some(path)).unwrap()
}

#[test]
fn no_other_server_gets_the_password() {
    let blob = Descriptor::new("", Digest::of(b"blob"), 4);
    type Request = fn(&Registry, &Descriptor) -> Result<(), OciImageError>;
    let cases: [(&str, Request); 2] = [
        ("post", |registry, _| registry.put(b"blob").map(drop)),
        ("get", |registry, blob| registry.reader(blob, 0).map(drop)),
    ];
    for (method, request) in cases {
        let other = Server::start(|_| ASKS.to_owned());
        let at = other.at.clone();
        let own = Server::start(move |head| match head.split(' ').next() {
            _ if !head.contains("authorization: ") => ASKS.to_owned(),
            Some("head") => "404 Not Found".to_owned(),
            Some("post") => format!("202 Accepted\r\nLocation: http://{at}/upload"),
            _ => format!("307 Temporary Redirect\r\nLocation: http://{at}/blob"),
        });
        let error = request(&opened(&own), &blob).unwrap_err();
        assert!(matches!(error, OciImageError::Denied { .. }), "{error}");
        let asked = own.heads();
        assert!(asked.contains(&PASSWORD.to_lowercase()), "{asked}");
        assert!(asked.contains(&format!("{method} /v2")), "{asked}");
        let told = other.heads();
        assert!(
            !told.is_empty() && !told.contains("authorization"),
            "{told}"
        );
    }
}

/// The server of tokens is another one for some registries, but never without TLS.
#[test]
fn no_other_server_of_tokens_gets_the_password_without_tls() {
    let other = Server::start(|_| ASKS.to_owned());
    let realm = format!("Bearer realm=\"http://{}/token\"", other.at);
    let own = Server::start(move |_| format!("401 Unauthorized\r\nWWW-Authenticate: {realm}"));
    let error = opened(&own).manifest("any").unwrap_err();
    assert!(matches!(error, OciImageError::Denied { .. }), "{error}");
    let told = other.heads();
    assert!(
        !told.is_empty() && !told.contains("authorization"),
        "{told}"
    );
}
