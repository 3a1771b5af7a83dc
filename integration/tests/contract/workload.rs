//! Workloads that run on this machine itself.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stasis_integration::host::c_build;

/// The time that a healthy workload may take to start or to answer; a real driver takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tag by which faults name every workload.
const TAG: &str = "contract";

/// A workload, killed when dropped.
pub(crate) struct Workload {
    child: Child,
    port: u16,
}

impl Workload {
    pub(crate) fn counter() -> Result<Self> {
        Self::start("counter", 1, &[], &[], &[])
    }

    /// Starts a counter that could see this many GPUs, and counts on these of them.
    pub(crate) fn counter_on(
        gpus: usize,
        devices: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start("counter", gpus, &[], devices, environment)
    }

    pub(crate) fn memcheck(mib: u32) -> Result<Self> {
        Self::start("memcheck", 1, &[&mib.to_string()], &[], &[])
    }

    pub(crate) fn managed() -> Result<Self> {
        Self::start("memcheck", 1, &["1"], &["managed"], &[])
    }

    pub(crate) fn forker(options: &[&str]) -> Result<Self> {
        Self::start("forker", 1, &[], options, &[])
    }

    /// Starts a counter and a process that shares its memory, as a child of vfork(2) does.
    pub(crate) fn with_same_memory() -> Result<Self> {
        Self::start("hostile", 1, &["same-memory"], &[], &[])
    }

    /// Starts this many ranks, on two GPUs if there are two.
    pub(crate) fn ranks(count: u32, options: &[&str]) -> Result<Self> {
        let count = count.to_string();
        let arguments = [&[count.as_str()], options].concat();
        Self::start("ranks", 2, &[], &arguments, &[])
    }

    /// Starts a process with this much memory on each of two GPUs, with peer access between them.
    pub(crate) fn peers(mib: u32, options: &[&str]) -> Result<Self> {
        let mib = mib.to_string();
        let arguments = [&[mib.as_str()], options].concat();
        Self::start("peers", 2, &[], &arguments, &[])
    }

    /// Starts an owner of this much GPU memory and an importer of it, on two GPUs if there are two:
    /// the children of the workload, in this order.
    pub(crate) fn sharing(mib: u32, options: &[&str]) -> Result<Self> {
        let mib = mib.to_string();
        let arguments = [&[mib.as_str()], options].concat();
        Self::start("sharing", 2, &[], &arguments, &[])
    }

    /// Starts a program that could see this many GPUs.
    fn start(
        program: &str,
        gpus: usize,
        before_port: &[&str],
        after_port: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let port = own_port();
        let child = command_for(program, gpus)?
            .env("STASIS_TAG", TAG)
            .envs(environment.iter().copied())
            .args(before_port)
            .arg(port.to_string())
            .args(after_port)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("starting the workload {program}"))?;
        Ok(Self { child, port })
    }

    /// Returns the tag by which faults name the workload.
    pub(crate) fn tag(&self) -> &'static str {
        TAG
    }

    /// Returns the processes that the workload has forked, in that order.
    pub(crate) fn children(&self) -> Result<Vec<i32>> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(children
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?)
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Sends a packet, once the workload is ready, and waits for the answer.
    pub(crate) fn ask(&self) -> Result<String> {
        self.send()?.answer()
    }

    pub(crate) fn send(&self) -> Result<Question> {
        let deadline = Instant::now() + PATIENCE;
        while !port_is_open(self.port)? {
            ensure!(Instant::now() < deadline, "the workload does not start");
            sleep(Duration::from_millis(5));
        }
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, self.port))?;
        socket.send(b"next")?;
        Ok(Question { socket })
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // The workload may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A packet on its way.
pub(crate) struct Question {
    socket: UdpSocket,
}

impl Question {
    pub(crate) fn answer(&self) -> Result<String> {
        match self.answer_within(PATIENCE)? {
            Some(answer) => Ok(answer),
            None => bail!("the workload does not answer"),
        }
    }

    pub(crate) fn answer_within(&self, time: Duration) -> Result<Option<String>> {
        let mut answer = [0; 256];
        self.socket.set_read_timeout(Some(time))?;
        match self.socket.recv(&mut answer) {
            Ok(size) => {
                let text = String::from_utf8_lossy(&answer[..size]);
                Ok(Some(text.trim().to_owned()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("asking a workload"),
        }
    }
}

/// Returns a command for the program on the real driver, or on the stand-in.
fn command_for(program: &str, gpus: usize) -> Result<Command> {
    if c_build::has_gpu() {
        return Ok(Command::new(c_build::build()?.join("bin").join(program)));
    }
    c_build::on_standin(program, gpus)
}

/// Returns a port below the ones that the kernel gives to unbound sockets, other tests' among them.
fn own_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let offset = std::process::id() % 1000 * 20 + NEXT.fetch_add(1, Ordering::Relaxed);
    u16::try_from(11_000 + offset).unwrap()
}

/// Looked up in /proc, and not by a packet: one that is sent twice may be counted twice.
fn port_is_open(port: u16) -> Result<bool> {
    let table = fs::read_to_string("/proc/net/udp")?;
    let local = format!(":{port:04X}");
    Ok(table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .any(|address| address.ends_with(&local)))
}
