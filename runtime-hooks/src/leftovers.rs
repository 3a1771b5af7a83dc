//! NVIDIA devices that a forked child has inherited.
//!
//! A child that was forked after its parent began with CUDA and never exec'd anything (PyTorch's DataLoader workers are such) has
//! the parent's descriptors and mappings of `/dev/nvidia*`. It cannot use CUDA: the driver says NOT_INITIALIZED to it. But it
//! keeps those references even when the driver has taken the parent's away, and CRIU can dump neither ("Can't handle non-regular
//! mapping"). So it gives them up: each descriptor becomes one of `/dev/null`, each mapping private memory at the same place, so
//! that whoever still closes or touches one (a destructor at the child's end) does no harm and hits nobody else's.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};

use nix::libc;

use crate::container::Container;
use crate::cuda::{CudaError, Driver};
use crate::process::ProcessRef;
use crate::remote_call::RemoteThread;
use crate::same_file::same_file;

const PAGE: u64 = 4096;
const NULL: &[u8] = b"/dev/null\0";

/// What one process has of NVIDIA's devices.
#[derive(Debug, Default, PartialEq, Eq)]
struct Leftovers {
    descriptors: Vec<Descriptor>,
    mappings: Vec<Mapping>,
}

#[derive(Debug, PartialEq, Eq)]
struct Descriptor {
    number: u32,
    /// Its `O_CLOEXEC`, as dup3(2) takes it.
    close_on_exec: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    length: u64,
    /// As mmap(2) takes it.
    protection: u64,
}

/// A child whose leftovers are in the way of a dump.
#[derive(Debug, thiserror::Error)]
#[error(
    "process {pid} ({name}) was forked by a CUDA process, and its inherited NVIDIA devices, which criu cannot dump, cannot be \
     taken from it"
)]
pub struct LeftoversError {
    pid: i32,
    name: String,
    #[source]
    source: io::Error,
}

/// What one process gave up, for the log.
#[derive(Debug)]
pub(crate) struct GivenUp {
    process: String,
    descriptors: usize,
    mappings: usize,
}

/// The processes of a container that hold what they inherited from one of `members`, its CUDA processes; to be asked while those have
/// their devices, and so before the GPU checkpoint.
///
/// A process that begins with CUDA right now has devices, too, and the driver does not know it yet: it shares none with others.
///
/// # Errors
/// What looking at a process said.
pub(crate) fn heirs(
    container: &Container,
    members: &[ProcessRef],
) -> Result<Vec<ProcessRef>, LeftoversError> {
    let mut heirs = Vec::new();
    let processes = container
        .processes()
        .map_err(|error| failed(container.init(), error))?;
    for process in processes {
        let is_member = members.iter().any(|member| member.pid() == process.pid());
        if !is_member
            && has_inherited(&process, members).map_err(|error| failed(&process, error))?
        {
            heirs.push(process);
        }
    }
    Ok(heirs)
}

/// Has every heir give up what it inherited; to be called when the driver has taken all that is the members' own.
///
/// # Errors
/// The first process that cannot be freed of it. What others gave up, they could not use.
pub(crate) fn give_up(
    driver: &dyn Driver,
    heirs: &[ProcessRef],
) -> Result<Vec<GivenUp>, LeftoversError> {
    let mut given_up = Vec::new();
    for process in heirs {
        let leftovers = Leftovers::of(process).map_err(|error| failed(process, error))?;
        // One that can use CUDA after all keeps what it has, and CRIU says what it thinks of that.
        if leftovers.is_empty() || driver.state(process.pid()) != Err(CudaError::NotInitialized) {
            continue;
        }
        match leftovers.replace(process) {
            Err(_) if process.is_gone() => continue,
            other => other.map_err(|error| failed(process, error))?,
        }
        given_up.push(leftovers.given_up_by(process));
    }
    Ok(given_up)
}

/// fork(2) keeps the numbers of descriptors. A process with mappings and no descriptor of a device has closed those it inherited:
/// nobody can have mapped a device without.
fn has_inherited(process: &ProcessRef, members: &[ProcessRef]) -> io::Result<bool> {
    let Leftovers {
        descriptors,
        mappings,
    } = Leftovers::of(process)?;
    if descriptors.is_empty() {
        return Ok(!mappings.is_empty());
    }
    for Descriptor { number, .. } in descriptors {
        for member in members {
            if same_file((process, number), (member, number))? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl Leftovers {
    /// Nothing, for a process that has ended.
    fn of(process: &ProcessRef) -> io::Result<Self> {
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

    fn is_empty(&self) -> bool {
        self.descriptors.is_empty() && self.mappings.is_empty()
    }

    fn replace(&self, process: &ProcessRef) -> io::Result<()> {
        let mut thread = RemoteThread::stop(process)?;
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

    fn given_up_by(&self, process: &ProcessRef) -> GivenUp {
        GivenUp {
            process: process.to_string(),
            descriptors: self.descriptors.len(),
            mappings: self.mappings.len(),
        }
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

fn failed(process: &ProcessRef, source: io::Error) -> LeftoversError {
    LeftoversError {
        pid: process.pid(),
        name: process.name().to_owned(),
        source,
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} gave up {} descriptors and {} mappings of NVIDIA devices that it had inherited and could not use",
            self.process, self.descriptors, self.mappings
        )
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
