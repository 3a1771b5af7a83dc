//! A proxy to a server of a test host on which connections break.
//!
//! It runs in the test's own process, in threads of it; only its sockets belong to the host's
//! network.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{Shutdown as HowToShut, shutdown};

use super::Host;
use super::registry::in_network;

const POLL: Duration = Duration::from_millis(5);

/// The proxy; it ends when this is dropped.
#[derive(Debug)]
pub struct BreakingProxy {
    listener: Arc<TcpListener>,
    rules: Arc<Rules>,
    server: Option<JoinHandle<()>>,
}

/// The rules by which connections break.
#[derive(Debug)]
struct Rules {
    to: SocketAddr,
    after: u64,
    /// The number of connections that still break.
    left: AtomicU32,
    broken: AtomicU32,
    /// Bytes that have come from the server.
    passed: AtomicU64,
    /// After this many bytes of one connection no more of them are passed on.
    hold_after: AtomicU64,
    held: AtomicU32,
}

impl BreakingProxy {
    /// Leads from one port of the host's own address to another one. The first `times` connections
    /// that have passed `after` bytes one way break.
    pub fn start(host: &Host, from: u16, to: u16, after: u64, times: u32) -> Result<Self> {
        let network = Arc::new(File::open(format!("/proc/{}/ns/net", host.init()))?);
        let [at, to] = [from, to].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let listener = in_network(&network, || TcpListener::bind(at))?;
        let listener = Arc::new(listener.context("listening as a proxy")?);
        let rules = Arc::new(Rules {
            to,
            after,
            left: AtomicU32::new(times),
            broken: AtomicU32::new(0),
            passed: AtomicU64::new(0),
            hold_after: AtomicU64::new(u64::MAX),
            held: AtomicU32::new(0),
        });
        let (listens, shared) = (Arc::clone(&listener), Arc::clone(&rules));
        let server = std::thread::spawn(move || {
            for client in listens.incoming().map_while(Result::ok) {
                let opened = in_network(&network, || TcpStream::connect(shared.to));
                if let Ok(Ok(server)) = opened {
                    pass_both_ways(&client, &server, &shared);
                }
            }
        });
        Ok(Self {
            listener,
            rules,
            server: Some(server),
        })
    }

    /// Returns how many connections have been broken.
    pub fn broken(&self) -> u32 {
        self.rules.broken.load(Ordering::Relaxed)
    }

    /// From now on connections pass on this many bytes of the server, and then none until
    /// [`BreakingProxy::let_go`].
    pub fn hold_after(&self, bytes: u64) {
        self.rules.hold_after.store(bytes, Ordering::Relaxed);
    }

    /// Returns how many connections are held now.
    pub fn held(&self) -> u32 {
        self.rules.held.load(Ordering::Relaxed)
    }

    /// Resumes all connections.
    pub fn let_go(&self) {
        self.hold_after(u64::MAX);
    }

    /// Returns how many bytes have come from the server.
    pub fn passed(&self) -> u64 {
        self.rules.passed.load(Ordering::Relaxed)
    }
}

impl Drop for BreakingProxy {
    fn drop(&mut self) {
        self.let_go();
        // Ends the wait for a connection. Closing would not free the port for the next proxy: a
        // program that another test is starting has this descriptor until its exec.
        if shutdown(self.listener.as_raw_fd(), HowToShut::Both).is_ok() {
            let _ = self.server.take().map(JoinHandle::join);
        }
    }
}

fn pass_both_ways(client: &TcpStream, server: &TcpStream, rules: &Arc<Rules>) {
    for (from, to, way) in [(client, server, Way::In), (server, client, Way::Out)] {
        let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
            return;
        };
        let rules = Arc::clone(rules);
        std::thread::spawn(move || {
            pass(&from, &to, way, &rules);
            for end in [from, to] {
                let _ = end.shutdown(Shutdown::Both);
            }
        });
    }
}

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To the server.
    In,
    /// From the server.
    Out,
}

/// Passes bytes on until one end closes or the connection breaks.
fn pass(mut from: &TcpStream, mut to: &TcpStream, way: Way, rules: &Rules) {
    let mut buffer = vec![0; 64 << 10];
    let mut passed = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        passed += read as u64;
        if passed > rules.after && take_one(&rules.left) {
            rules.broken.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if way == Way::Out {
            rules.wait(passed);
        }
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
        if way == Way::Out {
            rules.passed.fetch_add(read as u64, Ordering::Relaxed);
        }
    }
}

impl Rules {
    /// Waits until a connection may pass on this many bytes.
    fn wait(&self, passed: u64) {
        let is_held = || passed > self.hold_after.load(Ordering::Relaxed);
        if !is_held() {
            return;
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        while is_held() {
            std::thread::sleep(POLL);
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take_one(left: &AtomicU32) -> bool {
    let take = |left: u32| left.checked_sub(1);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        .is_ok()
}
