//! The standard streams of processes, through named pipes as containerd's clients make them.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::libc::{ENXIO, O_NONBLOCK};
use nix::sys::stat::Mode;

use crate::host::Host;

/// Output, and the end of it, has to come within this time.
const DEADLINE: Duration = Duration::from_secs(30);
/// This much of the output is kept; the rest is only counted.
const KEPT: usize = 1 << 20;

/// Where a process's standard streams go: paths or URIs in the host; empty ones go nowhere.
#[derive(Debug, Clone, Default)]
pub struct Streams {
    /// Standard input.
    pub stdin: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Whether the process gets a terminal, whose output is all at `stdout`.
    pub terminal: bool,
}

impl Streams {
    /// Standard input, output and error.
    #[must_use]
    pub fn new(streams: [&str; 3]) -> Self {
        let [stdin, stdout, stderr] = streams.map(str::to_owned);
        Self {
            stdin,
            stdout,
            stderr,
            terminal: false,
        }
    }

    /// Input and output of a terminal.
    #[must_use]
    pub fn of_terminal([stdin, stdout]: [&str; 2]) -> Self {
        Self {
            terminal: true,
            ..Self::new([stdin, stdout, ""])
        }
    }
}

/// A reader of a named pipe of the host, which a thread reads to its end.
#[derive(Debug)]
pub struct Output {
    /// The pipe's path in the host.
    pub path: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<Received>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Received {
    first: Vec<u8>,
    bytes: usize,
    ended: bool,
}

impl Output {
    /// Makes the pipe; its reader waits for the shim to open it.
    pub fn new(host: &Host, path: &str) -> Result<Self> {
        Self::reached_at(host.path(path), path)
    }

    /// Makes the pipe where this process sees it at `reached`.
    pub fn reached_at(reached: PathBuf, path: &str) -> Result<Self> {
        make_fifo(&reached)?;
        let shared = Arc::new(Shared::default());
        let filled = Arc::clone(&shared);
        // The thread ends with the test program if the shim never opens the pipe.
        std::thread::spawn(move || filled.fill(&reached));
        Ok(Self {
            path: path.to_owned(),
            shared,
        })
    }

    /// Counts the bytes, once all writers have closed the pipe.
    ///
    /// # Errors
    /// They have not, after 30 s.
    pub fn bytes(&self) -> Result<usize> {
        let what = format!("the end of {}", self.path);
        Ok(self.shared.wait(&what, |received| received.ended)?.bytes)
    }

    /// Returns the output (its first MiB), once all writers have closed the pipe.
    ///
    /// # Errors
    /// They have not, after 30 s.
    pub fn text(&self) -> Result<String> {
        let what = format!("the end of {}", self.path);
        Ok(self.shared.wait(&what, |received| received.ended)?.text())
    }

    /// Waits until this text has been written.
    ///
    /// # Errors
    /// It was not within 30 s, or all writers closed the pipe before.
    pub fn expect(&self, text: &str) -> Result<()> {
        let what = format!("{text:?} in {}", self.path);
        let received = self.shared.wait(&what, |received| {
            received.ended || received.text().contains(text)
        })?;
        if !received.text().contains(text) {
            bail!("{} ended after {:?}", self.path, received.text());
        }
        Ok(())
    }

    /// Returns the output up to now.
    pub fn so_far(&self) -> String {
        self.shared.lock().text()
    }

    /// Whether all writers have closed the pipe by now.
    pub fn ended(&self) -> bool {
        self.shared.lock().ended
    }
}

impl Received {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.first).into_owned()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, fifo: &Path) {
        let mut buffer = vec![0; 1 << 16];
        if let Ok(mut fifo) = File::open(fifo) {
            while let Ok(length @ 1..) = fifo.read(&mut buffer) {
                let mut received = self.lock();
                received.bytes += length;
                let room = KEPT.saturating_sub(received.first.len()).min(length);
                received.first.extend_from_slice(&buffer[..room]);
                self.more.notify_all();
            }
        }
        self.lock().ended = true;
        self.more.notify_all();
    }

    fn wait(
        &self,
        what: &str,
        done: impl Fn(&Received) -> bool,
    ) -> Result<MutexGuard<'_, Received>> {
        let waited = self
            .more
            .wait_timeout_while(self.lock(), DEADLINE, |received| !done(received));
        let (received, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            let (bytes, text) = (received.bytes, received.text());
            bail!("no {what} within 30 s; there were {bytes} bytes, beginning with {text:.200?}");
        }
        Ok(received)
    }
}

/// A named pipe of the host that a process reads.
#[derive(Debug)]
pub struct Input {
    /// The pipe's path in the host.
    pub path: String,
    reached: PathBuf,
}

impl Input {
    /// Makes the pipe.
    pub fn new(host: &Host, path: &str) -> Result<Self> {
        let reached = host.path(path);
        make_fifo(&reached)?;
        Ok(Self {
            path: path.to_owned(),
            reached,
        })
    }

    /// Writes a text, and closes this writer.
    ///
    /// # Errors
    /// The shim does not open the pipe within 30 s.
    pub fn write(&self, text: &str) -> Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let mut options = OpenOptions::new();
            match options
                .write(true)
                .custom_flags(O_NONBLOCK)
                .open(&self.reached)
            {
                Ok(mut fifo) => return Ok(fifo.write_all(text.as_bytes())?),
                Err(error) if error.raw_os_error() == Some(ENXIO) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("opening {}", self.path));
                }
            }
        }
    }
}

fn make_fifo(path: &Path) -> Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mode = Mode::from_bits_truncate(0o600);
    nix::unistd::mkfifo(path, mode).with_context(|| format!("making the pipe {}", path.display()))
}
