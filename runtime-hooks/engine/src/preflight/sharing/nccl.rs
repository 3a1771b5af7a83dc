//! Finds CUDA processes that are ranks of an NCCL job and may share GPU memory.
//!
//! The driver saves shared GPU memory without an error and fails to restore it; then every process
//! of the job is lost (measured on driver 580.159, H200). `import torch` alone loads NCCL, so only
//! its use counts: two notebooks are no job.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use stasis_config::BlockerKind;
use stasis_gpu::cuda::nvml::Inventory;
use stasis_linux::ProcessRef;

use crate::container::inside;
use crate::preflight::blocker::Finding;
use crate::preflight::open_files::{Environment, OpenFiles, threads_named};
use crate::preflight::sharing::neighbours;
use crate::preflight::tcp::Connections;

/// The thread names of PyTorch's NCCL process groups, and NCCL's own if `NCCL_SET_THREAD_NAME` is
/// set.
const THREADS: [&str; 2] = ["pt_nccl_", "NCCL "];
/// The files of NCCL's shared memory transport.
const SHARED_FILE: &str = "/dev/shm/nccl-";
const CONF_FILE: &str = "/etc/nccl.conf";
const MAX_CONF_BYTES: u64 = 64 << 10;
/// How many parents to search for the environment of a process that has overwritten its own.
const MAX_PARENTS: usize = 32;

/// A CUDA process and its open files.
pub(crate) struct Candidate {
    pub(crate) process: ProcessRef,
    pub(crate) held: OpenFiles,
}

/// Returns the ranks of a job that may share GPU memory, each with the evidence.
///
/// No driver restores memory that processes share. 610 does for old-style IPC between the processes
/// of a "job", one at a time, which is not driven here.
fn sharing_ranks<'a>(
    candidates: &'a [Candidate],
    connections: &Connections,
) -> io::Result<Vec<(&'a ProcessRef, String)>> {
    let mut ranks = Vec::new();
    for candidate in candidates {
        if let Some(evidence) = evidence_of_use(candidate, candidates, connections)? {
            ranks.push((&candidate.process, evidence));
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

/// Returns a blocker for each of them, and for each whose GPU others use, too.
pub(crate) fn findings(
    candidates: &[Candidate],
    connections: &Connections,
    inventory: &Inventory,
) -> io::Result<Vec<Finding>> {
    let ranks = sharing_ranks(candidates, connections)?;
    let members = candidates.iter().map(|candidate| candidate.process.pid());
    let neighbours = neighbours::findings(
        ranks.iter().map(|(process, _)| *process),
        &members.collect(),
        inventory,
    );
    let finding = |(process, evidence): (&ProcessRef, String)| Finding {
        kind: BlockerKind::NcclP2p,
        pid: process.pid(),
        name: process.name().to_owned(),
        evidence,
    };
    Ok(ranks.into_iter().map(finding).chain(neighbours).collect())
}

fn evidence_of_use(
    candidate: &Candidate,
    all: &[Candidate],
    connections: &Connections,
) -> io::Result<Option<String>> {
    for prefix in THREADS {
        if let Some(name) = threads_named(&candidate.process, prefix)?.first() {
            return Ok(Some(format!("it has a thread {name:?}")));
        }
    }
    if let Some(hold) = candidate.held.find(|path| path.starts_with(SHARED_FILE)) {
        return Ok(Some(hold.to_string()));
    }
    // Ranks keep TCP connections to each other, however they were started.
    let peer = all.iter().find(|other| {
        other.process.pid() != candidate.process.pid()
            && candidate.held.libnccl
            && other.held.libnccl
            && connections.are_between(&candidate.held.sockets, &other.held.sockets)
    });
    Ok(peer.map(|peer| {
        format!(
            "it has libnccl loaded and a TCP connection with {}",
            peer.process
        )
    }))
}

/// The NCCL variables of a process that are visible from outside.
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
    /// Reads the environment, then the user's file, then the machine's: the first value counts, as
    /// in NCCL.
    fn of(process: &ProcessRef) -> io::Result<Self> {
        let environment = environment_of(process)?;
        let mut variables = Self::default();
        variables.add(|name| environment.get(name).map(str::to_owned));
        for path in conf_files(&environment) {
            variables.add_file(process, &path);
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

    /// Reads a settings file. Ignores a file that is missing or cannot be read, as NCCL does.
    fn add_file(&mut self, process: &ProcessRef, path: &Path) {
        let text = inside::root_of(process)
            .and_then(|root| inside::read_file(root, path, MAX_CONF_BYTES))
            .unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        self.add(|name| conf_value(&text, name));
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.values.get(name)?.trim().parse().ok()
    }

    /// Returns the missing variable that would keep ranks from sharing GPU memory.
    /// `NCCL_P2P_DISABLE=1` alone is not enough: NCCL then shares host memory that the driver
    /// allocated, which it cannot restore either.
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

/// Returns the environment of a process, or the nearest parent's if the process has overwritten its
/// own with a title: children inherit it. Skips parents outside the container.
fn environment_of(process: &ProcessRef) -> io::Result<Environment> {
    let mut environment = Environment::read(process)?;
    let mut parent = process.parent()?;
    for _ in 0..MAX_PARENTS {
        let Some(next) = parent.filter(|_| environment.is_overwritten()) else {
            break;
        };
        // A parent is in the pid namespace of its child or in one above (pid_namespaces(7)).
        if next.namespace_depth() != process.namespace_depth() {
            break;
        }
        environment = Environment::read(&next)?;
        parent = next.parent()?;
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

/// Returns the value of a variable in the text of NCCL's settings file; the first one counts.
fn conf_value(text: &str, name: &str) -> Option<String> {
    let entries = text.lines().filter_map(|line| line.split_once('='));
    let mut values = entries.filter(|(known, _)| known.trim() == name);
    values.next().map(|(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests;
