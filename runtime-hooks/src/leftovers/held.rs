//! What a process has of NVIDIA's devices, and having it replaced by nothing.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};

use nix::libc;

use stasis_remote_call::RemoteThread;

use crate::process::ProcessRef;

const PAGE: u64 = 4096;
const NULL: &[u8] = b"/dev/null\0";

/// What one process has of NVIDIA's devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers {
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) mappings: Vec<Mapping>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) number: u32,
    /// Its `O_CLOEXEC`, as dup3(2) takes it.
    close_on_exec: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    start: u64,
    length: u64,
    /// As mmap(2) takes it.
    protection: u64,
}

impl Leftovers {
    /// Nothing, for a process that has ended.
    pub(super) fn of(process: &ProcessRef) -> io::Result<Self> {
        let pid = process.pid();
        match (descriptors(pid), mappings(pid)) {
            (Ok(descriptors), Ok(mappings)) => Ok(Self {
                descriptors,
                mappings,
            }),
            _ if process.is_gone() => Ok(Self::default()),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.descriptors.is_empty() && self.mappings.is_empty()
    }

    /// Has the process replace each by something that does nothing.
    pub(super) fn replace(&self, process: &ProcessRef) -> io::Result<()> {
        let mut thread = RemoteThread::stop(process.pid(), || process.is_gone())?;
        for mapping in &self.mappings {
            mapping.replace(&mut thread)?;
        }
        if self.descriptors.is_empty() {
            return Ok(());
        }
        let null = open_null(&mut thread, process.pid())?;
        let replaced = self.descriptors.iter().try_for_each(|descriptor| {
            let arguments = [null, descriptor.number.into(), descriptor.close_on_exec];
            thread.call(libc::SYS_dup3, &arguments).map(drop)
        });
        thread.call(libc::SYS_close, &[null])?;
        replaced
    }
}

impl Mapping {
    /// Private memory in its place: whoever still reads or writes there does no harm.
    fn replace(&self, thread: &mut RemoteThread) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        map(thread, self.start, self.length, self.protection, flags).map(drop)
    }
}

fn map(
    thread: &mut RemoteThread,
    start: u64,
    length: u64,
    protection: u64,
    flags: i32,
) -> io::Result<u64> {
    let flags = u64::from(flags.cast_unsigned());
    let arguments = [start, length, protection, flags, u64::MAX, 0];
    thread.call(libc::SYS_mmap, &arguments)
}

/// Opens `/dev/null` in the process. Its name needs memory, which is taken for it and given back: what is below the stack pointer may
/// be somebody's.
fn open_null(thread: &mut RemoteThread, pid: i32) -> io::Result<u64> {
    let protection = u64::from((libc::PROT_READ | libc::PROT_WRITE).cast_unsigned());
    let name = map(
        thread,
        0,
        PAGE,
        protection,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    )?;
    let memory = fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    let written = memory.write_all_at(NULL, name);
    let flags = u64::from((libc::O_RDWR | libc::O_CLOEXEC).cast_unsigned());
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let opened = written.and_then(|()| thread.call(libc::SYS_openat, &[here, name, flags, 0]));
    thread.call(libc::SYS_munmap, &[name, PAGE])?;
    let null = opened?;
    // The container decides what is at that path.
    let found = fs::metadata(format!("/proc/{pid}/fd/{null}"))?;
    let (major, minor) = (
        nix::sys::stat::major(found.rdev()),
        nix::sys::stat::minor(found.rdev()),
    );
    if found.file_type().is_char_device() && (major, minor) == (1, 3) {
        return Ok(null);
    }
    thread.call(libc::SYS_close, &[null])?;
    Err(io::Error::other(
        "the container's /dev/null is not what it should be",
    ))
}

fn descriptors(pid: i32) -> io::Result<Vec<Descriptor>> {
    let mut descriptors = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let name = entry.file_name();
        let (Ok(target), Some(number)) = (fs::read_link(entry.path()), name.to_str()) else {
            continue;
        };
        if !target.to_string_lossy().starts_with("/dev/nvidia") {
            continue;
        }
        let information = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}"))?;
        descriptors.push(Descriptor {
            number: number.parse().map_err(io::Error::other)?,
            close_on_exec: close_on_exec(&information),
        });
    }
    Ok(descriptors)
}

/// The flags of `/proc/PID/fdinfo/N` are octal, and O_CLOEXEC is among them (proc_pid_fdinfo(5)).
fn close_on_exec(information: &str) -> u64 {
    let flags = information
        .lines()
        .find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok());
    flags.unwrap_or(0) & u64::from(libc::O_CLOEXEC.cast_unsigned())
}

fn mappings(pid: i32) -> io::Result<Vec<Mapping>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let on_device = maps.lines().filter(|line| line.contains(" /dev/nvidia"));
    on_device
        .map(|line| {
            Mapping::parse(line).ok_or_else(|| {
                io::Error::other(format!("cannot make sense of its mapping {line:?}"))
            })
        })
        .collect()
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        let letters = fields.next()?;
        let bit = |letter, bit: i32| {
            if letters.contains(letter) {
                bit.cast_unsigned()
            } else {
                0
            }
        };
        let protection =
            bit('r', libc::PROT_READ) | bit('w', libc::PROT_WRITE) | bit('x', libc::PROT_EXEC);
        Some(Self {
            start,
            length: end.checked_sub(start)?,
            protection: protection.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_keeps_its_place_and_protection() {
        let line =
            "204a00000-204c00000 -w-s 204a00000 00:06 431                        /dev/nvidia-uvm";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.length), (0x2_04a0_0000, 2 << 20));
        assert_eq!(
            mapping.protection,
            u64::from(libc::PROT_WRITE.cast_unsigned())
        );
        assert!(Mapping::parse("nonsense").is_none());
    }

    #[test]
    fn close_on_exec_is_read_from_octal_flags() {
        assert_eq!(
            close_on_exec("pos:\t0\nflags:\t02100002\nmnt_id:\t15\n"),
            0o2_000_000
        );
        assert_eq!(close_on_exec("pos:\t0\nflags:\t0100002\n"), 0);
    }
}
