//! Whether CUDA processes of a container are ranks of an NCCL job that may share GPU memory.
//!
//! The driver saves such memory without complaint and fails to restore it, and every process of the job
//! is lost then (measured on driver 580.159, H200). `import torch` alone loads NCCL, so only its use
//! counts: two notebooks are no job.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use crate::connections::Connections;
use crate::process::ProcessRef;
use crate::traces::{Environment, Holds, threads_named};

/// PyTorch's threads for a process group with NCCL, and NCCL's own if it is told to name them
/// (`NCCL_SET_THREAD_NAME`).
const THREADS: [&str; 2] = ["pt_nccl_", "NCCL "];
/// What NCCL's transport through host memory shares.
const SHARED_FILE: &str = "/dev/shm/nccl-";
const CONF_FILE: &str = "/etc/nccl.conf";
const MAX_CONF_BYTES: u64 = 64 << 10;
/// How many parents are asked for the environment of a process that has overwritten its own.
const MAX_PARENTS: usize = 32;

/// A CUDA process and what it holds.
pub(crate) struct Candidate<'a> {
    pub(crate) process: &'a ProcessRef,
    pub(crate) holds: &'a Holds,
}

/// Whether drivers of this version restore GPU memory that processes share. None does so far: 610 does
/// for old-style IPC between the processes of a "job", one at a time, which is not driven here.
pub(crate) fn restores_shared_memory(_driver_version: &str) -> bool {
    false
}

/// The ranks of a job that may share GPU memory, each with how that shows.
///
/// # Errors
/// What reading `/proc` said.
pub(crate) fn sharing_ranks<'a>(
    candidates: &[Candidate<'a>],
    connections: &Connections,
) -> io::Result<Vec<(&'a ProcessRef, String)>> {
    let mut ranks = Vec::new();
    for candidate in candidates {
        if let Some(evidence) = evidence_of_use(candidate, candidates, connections)? {
            ranks.push((candidate.process, evidence));
        }
    }
    if ranks.len() < 2 {
        return Ok(Vec::new());
    }
    let mut sharing = Vec::new();
    for (process, evidence) in ranks {
        if let Some(missing) = Variables::of(process)?.missing() {
            sharing.push((process, format!("{evidence}, and {missing}")));
        }
    }
    Ok(sharing)
}

fn evidence_of_use(
    candidate: &Candidate<'_>,
    all: &[Candidate<'_>],
    connections: &Connections,
) -> io::Result<Option<String>> {
    for prefix in THREADS {
        if let Some(name) = threads_named(candidate.process, prefix)?.first() {
            return Ok(Some(format!("it has a thread {name:?}")));
        }
    }
    if let Some(hold) = candidate.holds.find(|path| path.starts_with(SHARED_FILE)) {
        return Ok(Some(hold.to_string()));
    }
    // Ranks keep connections between each other, whoever started them.
    let peer = all.iter().find(|other| {
        other.process.pid() != candidate.process.pid()
            && candidate.holds.libnccl
            && other.holds.libnccl
            && connections.are_between(&candidate.holds.sockets, &other.holds.sockets)
    });
    Ok(peer.map(|peer| {
        format!(
            "it has libnccl loaded and a TCP connection with {}",
            peer.process
        )
    }))
}

/// The variables of NCCL that a process has, as far as they can be seen from outside.
#[derive(Debug, Default)]
struct Variables {
    values: BTreeMap<&'static str, String>,
}

const NAMES: [&str; 4] = [
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
];

impl Variables {
    /// From the environment, then the user's file, then the machine's: the first word counts, as NCCL
    /// reads them.
    fn of(process: &ProcessRef) -> io::Result<Self> {
        let environment = environment_of(process.pid())?;
        let mut variables = Self::default();
        variables.add(|name| environment.get(name).map(str::to_owned));
        for path in conf_files(&environment) {
            let text = read_inside(process.pid(), &path).unwrap_or_default();
            variables.add(|name| conf_value(&text, name));
        }
        Ok(variables)
    }

    fn add(&mut self, value_of: impl Fn(&str) -> Option<String>) {
        for name in NAMES {
            if let Some(value) = value_of(name) {
                self.values.entry(name).or_insert(value);
            }
        }
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.values.get(name)?.trim().parse().ok()
    }

    /// What is missing for ranks that share no GPU memory. `NCCL_P2P_DISABLE=1` alone is not enough:
    /// NCCL then shares host memory that the driver allocated, which it cannot restore either.
    fn missing(&self) -> Option<&'static str> {
        let level = self.values.get("NCCL_P2P_LEVEL").map(|level| level.trim());
        let p2p_is_off =
            self.number("NCCL_P2P_DISABLE") == Some(1) || matches!(level, Some("LOC" | "0"));
        let cumem_is_off = self.number("NCCL_CUMEM_ENABLE") == Some(0)
            || self.number("NCCL_CUMEM_HOST_ENABLE") == Some(0);
        match (p2p_is_off, cumem_is_off) {
            (true, true) => None,
            (false, _) => Some("was not started with NCCL_P2P_DISABLE=1"),
            (true, false) => {
                Some("was not started with NCCL_CUMEM_ENABLE=0 or NCCL_CUMEM_HOST_ENABLE=0")
            }
        }
    }
}

/// The environment of a process, or that of the nearest parent if the process has written its title
/// over its own: children inherit it. The parents outside are not the container's.
fn environment_of(pid: i32) -> io::Result<Environment> {
    let namespace = |pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let home = namespace(pid);
    let mut pid = pid;
    let mut environment = Environment::read(pid)?;
    for _ in 0..MAX_PARENTS {
        if !environment.is_overwritten() {
            break;
        }
        match ProcessRef::parent_of(pid)? {
            Some(parent) if namespace(parent) == home => pid = parent,
            _ => break,
        }
        environment = Environment::read(pid)?;
    }
    Ok(environment)
}

fn conf_files(environment: &Environment) -> Vec<PathBuf> {
    let own = match (environment.get("NCCL_CONF_FILE"), environment.get("HOME")) {
        (Some(file), _) => Some(PathBuf::from(file)),
        (None, Some(home)) => Some(Path::new(home).join(".nccl.conf")),
        (None, None) => None,
    };
    own.into_iter().chain([CONF_FILE.into()]).collect()
}

/// The value of a variable in the text of a settings file of NCCL; the first one counts.
fn conf_value(text: &str, name: &str) -> Option<String> {
    let entries = text.lines().filter_map(|line| line.split_once('='));
    let mut values = entries.filter(|(known, _)| known.trim() == name);
    values.next().map(|(_, value)| value.trim().to_owned())
}

/// A file as the process finds it. Its root is the container's to fill, so no link leads out of it, and
/// a fifo is not waited for.
fn read_inside(pid: i32, path: &Path) -> io::Result<String> {
    let root = File::open(format!("/proc/{pid}/root"))?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(openat2(root, path, flags, Mode::empty(), inside)?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(MAX_CONF_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests;
