//! Finds the NVIDIA devices that a process has open or mapped, and replaces them.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};

use nix::libc;
use serde::{Deserialize, Serialize};
use stasis_linux::ProcessRef;
use stasis_linux::procfs::{self, descriptors, for_each_mapping};
use stasis_remote_call::{Proxy, Shared};

const PAGE: u64 = 4096;
const NULL: &[u8] = b"/dev/null\0";
const DEVICE: &[u8] = b"/dev/nvidia";
/// A process with CUDA on eight GPUs has some hundreds of each. Replacing one takes four stops of
/// the process (ptrace(2)), in which all others wait.
const MAX_HELD: usize = 1 << 14;

/// The NVIDIA devices that one process has open or mapped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InheritedDevices {
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) mappings: Vec<Mapping>,
}

/// How many devices of a process were replaced.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Replaced {
    pub(super) descriptors: usize,
    pub(super) mappings: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) number: u32,
    /// Whether its `O_CLOEXEC` is set.
    close_on_exec: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    start: u64,
    length: u64,
    /// As mmap(2) takes it.
    protection: u64,
}

impl InheritedDevices {
    /// Reads the devices of a process; empty if it has ended.
    pub(super) fn of(process: &ProcessRef) -> io::Result<Self> {
        let pid = process.pid();
        match (held_descriptors(pid), held_mappings(pid)) {
            (Ok(descriptors), Ok(mappings)) => Ok(Self {
                descriptors,
                mappings,
            }),
            _ if process.is_gone() => Ok(Self::default()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    pub(super) fn count(&self) -> Replaced {
        Replaced {
            descriptors: self.descriptors.len(),
            mappings: self.mappings.len(),
        }
    }

    /// Replaces each by one without effect, through a proxy process that shares the memory and the
    /// descriptors. Returns the replaced devices.
    pub(super) fn replace(process: &ProcessRef) -> io::Result<Self> {
        let shared = Shared::MemoryAndDescriptors;
        let mut proxy = Proxy::of_running(process.pid(), shared, || process.is_gone())?;
        // Read them while a thread of it is stopped: most have no other thread, so they stay the
        // same.
        let found = Self::of(process)?;
        found.replace_by(&mut proxy)?;
        proxy.end()?;
        Ok(found)
    }

    /// Descriptors last: as long as there is one, the process is found by it. A process without
    /// descriptors and mappings need not be found.
    fn replace_by(&self, proxy: &mut Proxy) -> io::Result<()> {
        for mapping in &self.mappings {
            mapping.replace(proxy)?;
        }
        if self.descriptors.is_empty() {
            return Ok(());
        }
        let null = open_null(proxy)?;
        let replaced = self.descriptors.iter().try_for_each(|descriptor| {
            let flags = if descriptor.close_on_exec {
                libc::O_CLOEXEC
            } else {
                0
            };
            let arguments = [null, descriptor.number.into(), flags.cast_unsigned().into()];
            proxy.call(libc::SYS_dup3, &arguments).map(drop)
        });
        proxy.call(libc::SYS_close, &[null])?;
        replaced
    }
}

impl Mapping {
    /// Maps private memory over it, so that later reads and writes there do no harm.
    fn replace(&self, proxy: &mut Proxy) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        map(proxy, self.start, self.length, self.protection, flags).map(drop)
    }
}

fn map(proxy: &mut Proxy, start: u64, length: u64, protection: u64, flags: i32) -> io::Result<u64> {
    let flags = u64::from(flags.cast_unsigned());
    let arguments = [start, length, protection, flags, u64::MAX, 0];
    proxy.call(libc::SYS_mmap, &arguments)
}

/// Opens `/dev/null` in the process. The path needs memory, which is mapped for it and unmapped
/// again: memory below the stack pointer may be in use.
fn open_null(proxy: &mut Proxy) -> io::Result<u64> {
    let protection = u64::from((libc::PROT_READ | libc::PROT_WRITE).cast_unsigned());
    let name = map(
        proxy,
        0,
        PAGE,
        protection,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    )?;
    let memory = fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{}/mem", proxy.pid()))?;
    let written = memory.write_all_at(NULL, name);
    let flags = u64::from((libc::O_RDWR | libc::O_CLOEXEC).cast_unsigned());
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let opened = written.and_then(|()| proxy.call(libc::SYS_openat, &[here, name, flags, 0]));
    proxy.call(libc::SYS_munmap, &[name, PAGE])?;
    let null = opened?;
    // The container decides what is at that path.
    let found = fs::metadata(format!("/proc/{}/fd/{null}", proxy.pid()))?;
    let (major, minor) = (
        nix::sys::stat::major(found.rdev()),
        nix::sys::stat::minor(found.rdev()),
    );
    if found.file_type().is_char_device() && (major, minor) == (1, 3) {
        return Ok(null);
    }
    proxy.call(libc::SYS_close, &[null])?;
    Err(io::Error::other(
        "the container's /dev/null is not the null device (1:3)",
    ))
}

fn held_descriptors(pid: i32) -> io::Result<Vec<Descriptor>> {
    let mut held = Vec::new();
    for procfs::Descriptor { number, .. } in descriptors(pid)?.filter(is_device) {
        // It may have been closed meanwhile.
        if let Some(close_on_exec) = procfs::close_on_exec(pid, number)? {
            held.push(Descriptor {
                number,
                close_on_exec,
            });
        }
        at_most(MAX_HELD, held.len())?;
    }
    Ok(held)
}

fn is_device(descriptor: &procfs::Descriptor) -> bool {
    descriptor.target().starts_with(DEVICE)
}

fn held_mappings(pid: i32) -> io::Result<Vec<Mapping>> {
    let mut held = Vec::new();
    for_each_mapping::<Infallible>(pid, |mapping| {
        if mapping.path.starts_with(DEVICE) && held.len() <= MAX_HELD {
            held.push(Mapping::of(mapping));
        }
        ControlFlow::Continue(())
    })?;
    at_most(MAX_HELD, held.len())?;
    Ok(held)
}

fn at_most(limit: usize, count: usize) -> io::Result<()> {
    if count <= limit {
        return Ok(());
    }
    let text = format!("it has more than {limit} of them");
    Err(io::Error::other(text))
}

impl Mapping {
    fn of(mapping: procfs::Mapping<'_>) -> Self {
        let bit = |letter, bit: i32| {
            if mapping.has(letter) {
                bit.cast_unsigned()
            } else {
                0
            }
        };
        let protection =
            bit(b'r', libc::PROT_READ) | bit(b'w', libc::PROT_WRITE) | bit(b'x', libc::PROT_EXEC);
        Self {
            start: mapping.start,
            length: mapping.length(),
            protection: protection.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_keeps_its_place_and_protection() {
        let line =
            "204a00000-204c00000 -w-s 204a00000 00:06 431                        /dev/nvidia-uvm";
        let mapping = Mapping::of(procfs::Mapping::parse(line.as_bytes()).unwrap());
        assert_eq!((mapping.start, mapping.length), (0x2_04a0_0000, 2 << 20));
        assert_eq!(
            mapping.protection,
            u64::from(libc::PROT_WRITE.cast_unsigned())
        );
    }

    #[test]
    fn there_is_an_end_to_what_is_replaced() {
        assert!(at_most(MAX_HELD, MAX_HELD).is_ok());
        let error = at_most(MAX_HELD, MAX_HELD + 1).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 16384 of them");
    }
}
