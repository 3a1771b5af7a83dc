//! Reads one process of a container from `/proc`: its open devices and rings, other things that
//! CRIU does not dump, its NCCL threads, its environment. The container controls all of it, so
//! every read is bounded, and messages quote it.

pub(crate) mod undumpable;
pub(crate) mod watches;

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;

use stasis_linux::ProcessRef;
use stasis_linux::escape::escaped;
use stasis_linux::procfs::{Mapping, Stat, descriptors, for_each_mapping, gone_is_none, threads};

use undumpable::Undumpable;

/// The kernel limits the arguments and environment of execve(2) to 6 MiB.
const MAX_ENVIRONMENT_BYTES: u64 = 8 << 20;

/// The path prefixes of files that matter for a blocker.
const OF_INTEREST: [&str; 5] = [
    "/dev/nvidia",
    "/dev/infiniband/",
    "/dev/gdrdrv",
    "/dev/shm/nccl-",
    IO_URING,
];
/// The files that are kept of each beginning. A process may have a million, whose paths may take a
/// page each; the first of a kind is enough for a message.
const MOST_OF_A_BEGINNING: usize = 1024;
/// Every CUDA process maps 2 MiB of /dev/nvidia-uvm at an address of the driver's choice below 64
/// GiB. Managed memory is mapped where mmap(2) finds room (measured on driver 580.159).
const ABOVE_THE_DRIVERS_OWN: u64 = 64 << 30;
/// A ring of io_uring, as a descriptor and as a mapping.
pub(crate) const IO_URING: &str = "anon_inode:[io_uring]";

/// A file of interest that a process has open or mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenFile {
    /// The file as the kernel names it.
    pub(crate) path: String,
    /// Open or mapped.
    pub(crate) how: How,
}

/// How a process holds a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Open, under this descriptor.
    Descriptor(u32),
    /// Mapped.
    Mapping,
}

/// The files of interest that a process has open or mapped, and the libraries it has loaded.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenFiles {
    /// Files of interest, each once, and not more than 1024 that begin alike.
    pub(crate) files: Vec<OpenFile>,
    /// Whether libcuda is mapped.
    pub(crate) libcuda: bool,
    /// Whether libnccl is mapped.
    pub(crate) libnccl: bool,
    /// The address at which managed memory is mapped, if there is any.
    pub(crate) managed_memory: Option<u64>,
    /// The inodes of its sockets, each with a descriptor of it.
    pub(crate) sockets: BTreeMap<u64, u32>,
    /// Files and kernel objects that CRIU does not dump.
    pub(crate) undumpable: Undumpable,
    /// A directory whose files are of interest, too.
    pub(crate) directory: Option<String>,
    /// The paths in `files`, and how many begin as each of interest does.
    pub(crate) kept: HashSet<String>,
    pub(crate) of_beginning: [usize; OF_INTEREST.len() + 1],
}

impl OpenFiles {
    /// Reads the devices, rings and files below `directory` that a process has open or mapped, and
    /// what else CRIU does not dump; empty if it has ended.
    pub(crate) fn read(process: &ProcessRef, directory: Option<String>) -> io::Result<Self> {
        let mut holds = Self {
            directory,
            ..Self::default()
        };
        let pid = process.pid();
        for_each_mapping::<Infallible>(pid, |mapping| {
            let path = String::from_utf8_lossy(mapping.path);
            holds.add_mapping(mapping, &path);
            holds.undumpable.see_mapping(pid, &mapping, &path);
            ControlFlow::Continue(())
        })?;
        for descriptor in descriptors(pid)? {
            let path = String::from_utf8_lossy(descriptor.target());
            holds.add(&path, How::Descriptor(descriptor.number));
            let number = descriptor.number;
            holds.undumpable.see_descriptor(pid, number, &path);
        }
        Ok(holds)
    }

    fn add_mapping(&mut self, mapping: Mapping<'_>, path: &str) {
        if path == "/dev/nvidia-uvm" && mapping.start >= ABOVE_THE_DRIVERS_OWN {
            self.managed_memory.get_or_insert(mapping.start);
        }
        self.libcuda |= path.contains("/libcuda.so");
        self.libnccl |= path.contains("/libnccl.so");
        self.add(path, How::Mapping);
    }

    fn add(&mut self, path: &str, how: How) {
        if let (Some(inode), How::Descriptor(number)) = (socket_inode(path), how) {
            self.sockets.insert(inode, number);
            return;
        }
        let directory = self.directory.as_deref();
        let mut beginnings = OF_INTEREST.into_iter().chain(directory);
        let Some(beginning) = beginnings.position(|beginning| path.starts_with(beginning)) else {
            return;
        };
        let count = &mut self.of_beginning[beginning];
        if *count < MOST_OF_A_BEGINNING && self.kept.insert(path.to_owned()) {
            *count += 1;
            let path = path.to_owned();
            self.files.push(OpenFile { path, how });
        }
    }

    /// Returns the first matching file.
    pub(crate) fn find(&self, matches: impl Fn(&str) -> bool) -> Option<&OpenFile> {
        self.files.iter().find(|hold| matches(&hold.path))
    }
}

impl std::fmt::Display for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.how {
            How::Descriptor(number) => write!(f, "descriptor {number} is {:?}", self.path),
            How::Mapping => write!(f, "{:?} is mapped", self.path),
        }
    }
}

/// Returns the inode of a socket that a descriptor's target names.
pub(crate) fn socket_inode(path: &str) -> Option<u64> {
    let inode = path.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// Returns the names of the process's threads that begin with `prefix`.
pub(crate) fn threads_named(process: &ProcessRef, prefix: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for thread in threads(process.pid())? {
        let Some(stat) = Stat::of_thread(process.pid(), thread)? else {
            continue;
        };
        if stat.name.starts_with(prefix.as_bytes()) {
            names.push(escaped(&stat.name));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The environment that a process was started with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    text: String,
}

impl Environment {
    /// Reads `/proc/PID/environ`; empty if the process has ended.
    pub(crate) fn read(process: &ProcessRef) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let environ = gone_is_none(File::open(format!("/proc/{}/environ", process.pid())))?;
        if let Some(environ) = environ {
            gone_is_none(environ.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut bytes))?;
        }
        // Checked last, since the pid may have been given to another process.
        if process.is_gone() {
            bytes.clear();
        }
        Ok(Self::of(&bytes))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            text: String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    /// Returns the value of a variable; the first of that name, as getenv(3) finds it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut entries = self
            .text
            .split('\0')
            .filter_map(|entry| entry.split_once('='));
        entries
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Whether the program has overwritten it with its title (setproctitle): it is not empty, but
    /// has no variables.
    pub(crate) fn is_overwritten(&self) -> bool {
        !self.text.is_empty() && !self.text.split('\0').any(|entry| entry.contains('='))
    }
}

#[cfg(test)]
mod tests;
