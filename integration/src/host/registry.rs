//! A registry in a test host that the test image can be pulled from, over plain HTTP from
//! `localhost`.
//!
//! It runs in the test's own process, in threads of it; only its socket belongs to the host's
//! network.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns};

use crate::host::Host;

/// Where containerd looks for the images of `localhost`.
const ADDRESS: &str = "127.0.0.1:80";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A running registry; it ends when this is dropped.
#[derive(Debug)]
pub struct Registry {
    network: Arc<File>,
    stop: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

/// The contents of an image's archive.
#[derive(Debug)]
struct Blobs {
    by_digest: HashMap<String, Vec<u8>>,
    manifest: String,
}

impl Registry {
    /// Serves the image of an archive that [`crate::host::image::Image::write`] made.
    pub fn start(host: &Host, archive: &Path) -> Result<Self> {
        let blobs = Arc::new(Blobs::read(archive)?);
        let network = Arc::new(File::open(format!("/proc/{}/ns/net", host.init()))?);
        let listener = in_network(&network, || TcpListener::bind(ADDRESS))?
            .context("listening as a registry")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let server = std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let blobs = Arc::clone(&blobs);
                // Clients open connections that they may never use. A broken one is the client's
                // matter.
                std::thread::spawn(move || blobs.serve(&connection));
            }
        });
        Ok(Self {
            network,
            stop,
            server: Some(server),
        })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A connection ends the wait for one. Without it the server ends with this process.
        if let Ok(Ok(_)) = in_network(&self.network, || TcpStream::connect(ADDRESS)) {
            let _ = self.server.take().map(JoinHandle::join);
        }
    }
}

impl Blobs {
    fn read(archive: &Path) -> Result<Self> {
        let mut by_digest = HashMap::new();
        let mut manifest = None;
        let file = File::open(archive).with_context(|| archive.display().to_string())?;
        for entry in tar::Archive::new(file).entries()? {
            let mut entry = entry?;
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            let path = entry.path()?;
            if let Ok(digest) = path.strip_prefix("blobs/sha256") {
                by_digest.insert(format!("sha256:{}", digest.display()), content);
            } else if path == Path::new("index.json") {
                let index: serde_json::Value = serde_json::from_slice(&content)?;
                let digest = index["manifests"][0]["digest"].as_str();
                manifest = digest.map(str::to_owned);
            }
        }
        Ok(Self {
            by_digest,
            manifest: manifest.context("an archive without a manifest")?,
        })
    }

    fn serve(&self, mut connection: &TcpStream) -> std::io::Result<()> {
        connection.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut request = Vec::new();
        for line in BufReader::new(connection).lines() {
            match line? {
                line if line.is_empty() => break,
                line => request.push(line),
            }
        }
        let mut words = request.iter().flat_map(|line| line.split(' '));
        let (method, path) = (words.next(), words.next().unwrap_or_default());
        let Some((digest, content, kind)) = self.find(path) else {
            return connection.write_all(
                b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            );
        };
        let length = content.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Content-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\n\r\n"
        );
        connection.write_all(head.as_bytes())?;
        if method != Some("HEAD") {
            connection.write_all(content)?;
        }
        Ok(())
    }

    /// Returns the digest, content and media type of a path, whatever the image's name.
    fn find<'blobs>(
        &'blobs self,
        path: &'blobs str,
    ) -> Option<(&'blobs str, &'blobs [u8], &'static str)> {
        let path = path.split('?').next()?;
        let (rest, reference) = path.rsplit_once('/')?;
        let (digest, kind) = match (rest.rsplit_once('/')?.1, reference) {
            ("manifests", "latest") => (self.manifest.as_str(), MANIFEST),
            ("manifests", digest) => (digest, MANIFEST),
            ("blobs", digest) => (digest, "application/octet-stream"),
            _ => return None,
        };
        Some((digest, self.by_digest.get(digest)?, kind))
    }
}

/// Calls `work` in a network namespace, in a thread of its own.
pub(super) fn in_network<T: Send>(network: &File, work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| -> Result<T> {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        });
        let result = worker.join();
        result.map_err(|_| anyhow!("a thread panicked in a network of a test host"))?
    })
}
