//! What `/proc` tells of one process of a container: the devices and rings that it holds, its NCCL
//! threads, its environment. All of it is written by the container, so every read has an end, and what
//! goes into messages is quoted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};

use crate::process::{ProcessRef, gone_is_none};

/// 65530 mappings (vm.max_map_count) with paths of usual length; a hostile process can make the file
/// longer, and hides only from itself what comes after.
const MAX_MAPS_BYTES: u64 = 64 << 20;
/// As many as fs.nr_open allows by default.
const MAX_DESCRIPTORS: usize = 1 << 20;
const MAX_THREADS: usize = 1 << 16;
/// The kernel limits what execve takes to 6 MiB.
const MAX_ENVIRONMENT_BYTES: u64 = 8 << 20;

/// How the paths of files begin that matter for a blocker.
const OF_INTEREST: [&str; 5] = [
    "/dev/nvidia",
    "/dev/infiniband/",
    "/dev/gdrdrv",
    "/dev/shm/nccl-",
    IO_URING,
];
/// Every CUDA process maps 2 MiB of /dev/nvidia-uvm at an address of the driver's choice below 64 GiB.
/// Managed memory is mapped where mmap(2) finds room (measured on driver 580.159).
const ABOVE_THE_DRIVERS_OWN: u64 = 64 << 30;
/// A ring of io_uring, as a descriptor and as a mapping.
pub(crate) const IO_URING: &str = "anon_inode:[io_uring]";

/// A file of interest that a process has open or mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The file as the kernel names it.
    pub(crate) path: String,
    /// How it is held.
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

/// All holds of a process that may matter, and which libraries it has loaded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holds {
    /// Files of interest: one mapping and every descriptor of each.
    pub(crate) files: Vec<Hold>,
    /// Whether libcuda is mapped.
    pub(crate) libcuda: bool,
    /// Whether libnccl is mapped.
    pub(crate) libnccl: bool,
    /// Where managed memory is mapped, if there is any.
    pub(crate) managed_memory: Option<u64>,
    /// The inodes of its sockets.
    pub(crate) sockets: BTreeSet<u64>,
    /// A directory whose files are of interest, too.
    pub(crate) directory: Option<String>,
}

impl Holds {
    /// What a process holds, of devices, rings and files below `directory`; nothing if it has ended.
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub(crate) fn read(process: &ProcessRef, directory: Option<String>) -> io::Result<Self> {
        let mut holds = Self {
            directory,
            ..Self::default()
        };
        let maps = format!("/proc/{}/maps", process.pid());
        if let Some(maps) = gone_is_none(File::open(maps))? {
            gone_is_none(holds.read_maps(BufReader::new(maps.take(MAX_MAPS_BYTES))))?;
        }
        let descriptors = format!("/proc/{}/fd", process.pid());
        for entry in gone_is_none(fs::read_dir(descriptors))?
            .into_iter()
            .flatten()
            .take(MAX_DESCRIPTORS)
            .filter_map(Result::ok)
        {
            let number = entry.file_name().to_string_lossy().parse();
            if let (Ok(number), Ok(path)) = (number, fs::read_link(entry.path())) {
                holds.add(&path.to_string_lossy(), How::Descriptor(number));
            }
        }
        Ok(holds)
    }

    fn read_maps(&mut self, mut maps: impl BufRead) -> io::Result<()> {
        let mut line = Vec::new();
        while maps.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line);
            if let Some((start, path)) = mapping(&text) {
                if path == "/dev/nvidia-uvm" && start >= ABOVE_THE_DRIVERS_OWN {
                    self.managed_memory.get_or_insert(start);
                }
                self.libcuda |= path.contains("/libcuda.so");
                self.libnccl |= path.contains("/libnccl.so");
                self.add(path, How::Mapping);
            }
            line.clear();
        }
        Ok(())
    }

    fn add(&mut self, path: &str, how: How) {
        if let Some(inode) = socket_inode(path) {
            self.sockets.insert(inode);
            return;
        }
        let beginnings = self.directory.as_deref().into_iter().chain(OF_INTEREST);
        let of_interest = beginnings
            .into_iter()
            .any(|beginning| path.starts_with(beginning));
        let hold = Hold {
            path: path.to_owned(),
            how,
        };
        if of_interest && !self.files.contains(&hold) {
            self.files.push(hold);
        }
    }

    /// The first file that is held and matches.
    pub(crate) fn find(&self, matches: impl Fn(&str) -> bool) -> Option<&Hold> {
        self.files.iter().find(|hold| matches(&hold.path))
    }
}

impl std::fmt::Display for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.how {
            How::Descriptor(number) => write!(f, "descriptor {number} is {:?}", self.path),
            How::Mapping => write!(f, "{:?} is mapped", self.path),
        }
    }
}

fn socket_inode(path: &str) -> Option<u64> {
    let inode = path.strip_prefix("socket:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// The start and the file of a line of `/proc/PID/maps`. Between them are rights, offset, device and
/// inode.
fn mapping(line: &str) -> Option<(u64, &str)> {
    let (start, _) = line.split_once('-')?;
    let mut rest = line.trim_end_matches('\n');
    for _ in 0..5 {
        let (_, after) = rest.split_once(' ')?;
        rest = after.trim_start_matches(' ');
    }
    let start = u64::from_str_radix(start, 16).ok()?;
    Some((start, rest)).filter(|(_, path)| !path.is_empty())
}

/// The names of the process's threads that begin with `prefix`.
///
/// # Errors
/// What reading `/proc` said.
pub(crate) fn threads_named(process: &ProcessRef, prefix: &str) -> io::Result<Vec<String>> {
    let tasks = format!("/proc/{}/task", process.pid());
    let Some(tasks) = gone_is_none(fs::read_dir(tasks))? else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for task in tasks.take(MAX_THREADS).filter_map(Result::ok) {
        // A thread that has ended meanwhile is none.
        let Ok(name) = fs::read(task.path().join("comm")) else {
            continue;
        };
        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
        if name.starts_with(prefix) {
            names.push(name);
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
    ///
    /// # Errors
    /// What reading `/proc` said.
    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let environ = gone_is_none(File::open(format!("/proc/{pid}/environ")))?;
        if let Some(environ) = environ {
            gone_is_none(environ.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut bytes))?;
        }
        Ok(Self::of(&bytes))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            text: String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    /// The value of a variable; the first of that name, as getenv(3) finds it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut entries = self
            .text
            .split('\0')
            .filter_map(|entry| entry.split_once('='));
        entries
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Whether a program that writes its title there (setproctitle) has overwritten it: then it has
    /// room for variables and none in it.
    pub(crate) fn is_overwritten(&self) -> bool {
        !self.text.is_empty() && !self.text.split('\0').any(|entry| entry.contains('='))
    }
}

#[cfg(test)]
mod tests;
