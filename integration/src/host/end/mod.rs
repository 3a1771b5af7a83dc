//! The end of a test host, which a test that hangs may have left in any state.

pub(crate) mod orphans;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The environment variable with the seconds that a host may live: a test that hangs fails then,
/// and prints what the host's processes wait for. Without it, hosts live as long as wanted.
const LIMIT: &str = "STASIS_HOST_LIMIT_S";
/// The time for the host's processes to die, and its cgroups with them.
const TO_END: Duration = Duration::from_secs(180);

/// The host ends when this pipe closes, also by the death of this process.
#[derive(Debug)]
pub(super) struct Lifeline {
    pipe: Arc<Mutex<Option<ChildStdin>>>,
    limit: Option<Limit>,
}

/// A thread that ends a host at its limit.
#[derive(Debug)]
struct Limit {
    /// Once this is dropped there is nothing to be ended.
    wanted: Sender<()>,
    /// The processes that existed at the limit, if it was reached.
    there: JoinHandle<Option<String>>,
}

impl Lifeline {
    /// Lets the host of this name live until its limit, if there is one.
    pub(super) fn of(name: &str, pipe: Option<ChildStdin>) -> Result<Self> {
        let pipe = Arc::new(Mutex::new(pipe));
        let limit = match env::var(LIMIT) {
            Ok(seconds) => {
                let limit = Duration::from_secs(seconds.parse().context(LIMIT)?);
                Some(Limit::of(name, &pipe, limit))
            }
            Err(_) => None,
        };
        Ok(Self { pipe, limit })
    }

    /// Ends the host, and prints whether its limit has done so before. The test's own thread calls
    /// this: its output is shown where it fails.
    pub(super) fn close(&mut self, name: &str) {
        close(&self.pipe);
        let Some(Limit { wanted, there }) = self.limit.take() else {
            return;
        };
        drop(wanted);
        if let Ok(Some(there)) = there.join() {
            eprintln!("test host {name} was ended after {LIMIT}, with these there:\n{there}");
        }
    }
}

impl Limit {
    fn of(name: &str, pipe: &Arc<Mutex<Option<ChildStdin>>>, limit: Duration) -> Self {
        let (wanted, is_wanted) = channel();
        let (name, pipe) = (name.to_owned(), Arc::clone(pipe));
        let there = thread::spawn(move || {
            let over = is_wanted.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            let there = over.then(|| processes_of(&name));
            close(&pipe);
            there
        });
        Self { wanted, there }
    }
}

fn close(pipe: &Mutex<Option<ChildStdin>>) {
    if let Ok(mut pipe) = pipe.lock() {
        drop(pipe.take());
    }
}

/// Waits for the end of a host whose lifeline is closed.
pub(super) fn await_end(supervisor: &mut Child, name: &str) {
    // An error cannot be handled here, and the next host sweeps up what this one left.
    if let Ok(None) = wait_for(supervisor) {
        let there = processes_of(name);
        eprintln!("test host {name} does not end, with these there:\n{there}");
        assert!(thread::panicking(), "a test host does not end");
    }
}

/// Waits for the supervisor; `None` if it has not ended in time.
fn wait_for(supervisor: &mut Child) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + TO_END;
    loop {
        orphans::reap();
        match supervisor.try_wait()? {
            None if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            ended => return Ok(ended),
        }
    }
}

/// Lists the processes of a host's cgroups, and where in the kernel their threads wait.
fn processes_of(name: &str) -> String {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.map(|process| process.path());
    let of_host: Vec<PathBuf> = processes
        .filter(|process| {
            let cgroups = fs::read_to_string(process.join("cgroup"));
            cgroups.is_ok_and(|cgroups| cgroups.contains(name))
        })
        .collect();
    let mut text: String = of_host.iter().map(|process| threads_of(process)).collect();
    // Last: a reader of the command line of a process whose memory is locked may wait for ever.
    let (tell, told) = channel();
    thread::spawn(move || {
        for process in of_host {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace(['\0', '\n'], " ");
            let line: String = line.chars().take(200).collect();
            let _ = tell.send(format!("{}: {line}\n", process.display()));
        }
    });
    text.extend(iter::from_fn(|| {
        told.recv_timeout(Duration::from_secs(5)).ok()
    }));
    text
}

/// One line for all threads that wait at the same place: "31 (sh) S 1: do_wait kernel_wait4 (1)".
fn threads_of(process: &Path) -> String {
    let read = |path: &Path, file| fs::read_to_string(path.join(file)).unwrap_or_default();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let threads = fs::read_dir(process.join("task")).into_iter().flatten();
    for thread in threads.flatten() {
        let stack = read(&thread.path(), "stack");
        let functions = stack.lines().filter_map(|line| {
            let function = line.strip_prefix("[<0>] ")?;
            Some(function.split('+').next().unwrap_or(function))
        });
        let place: Vec<&str> = functions.take(4).collect();
        *places.entry(place.join(" ")).or_default() += 1;
    }
    let stat = read(process, "stat");
    let state: Vec<&str> = stat.split(' ').take(4).collect();
    let state = state.join(" ");
    let places = places.iter();
    places
        .map(|(place, count)| format!("{state}: {place} ({count})\n"))
        .collect()
}
