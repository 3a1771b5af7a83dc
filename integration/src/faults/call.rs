//! System calls that change something outside of the process that makes them.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::libc::{self, c_long, user_regs_struct};
use nix::unistd::Pid;

/// The calls that a plan counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// All that change something: files, processes, devices, memory of others.
    Changes,
    /// ptrace(2), with which a program has another make calls.
    Tracing,
    /// Calls that need room or a sound disk: writes, new files, flushes, of files on disk.
    Files,
    /// All that change something in a directory of an image.
    Images,
}

/// A call that changes something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Its name in the kernel.
    pub name: &'static str,
    /// The file that it changes, if any.
    pub path: Option<PathBuf>,
}

/// The place of the object that a call changes.
#[derive(Clone, Copy)]
enum Target {
    /// A path, in this argument, from the working directory.
    Path(usize),
    /// A path, in this argument, from the directory whose descriptor is in the one before.
    PathAt(usize),
    /// A file that is opened, with the path and the flags in these arguments; from the directory
    /// whose descriptor is in the argument before them, if there is one.
    Opened(usize, usize),
    /// A descriptor, in this argument.
    Descriptor(usize),
    /// A signal, in this argument.
    Signal(usize),
    /// A new thread or process, with the flags in the first argument.
    Process,
    /// The same, with the flags at the address in the first argument.
    ProcessAt,
    Nothing,
}

use Target::Signal as Signalled;
use Target::{Descriptor, Nothing, Opened, Path as At, PathAt, Process, ProcessAt};

const CALLS: [(c_long, &str, Target); 47] = [
    (libc::SYS_open, "open", Opened(0, 1)),
    (libc::SYS_creat, "creat", At(0)),
    (libc::SYS_openat, "openat", Opened(1, 2)),
    (libc::SYS_mkdir, "mkdir", At(0)),
    (libc::SYS_mkdirat, "mkdirat", PathAt(1)),
    (libc::SYS_rmdir, "rmdir", At(0)),
    (libc::SYS_unlink, "unlink", At(0)),
    (libc::SYS_unlinkat, "unlinkat", PathAt(1)),
    (libc::SYS_rename, "rename", At(1)),
    (libc::SYS_renameat, "renameat", PathAt(3)),
    (libc::SYS_renameat2, "renameat2", PathAt(3)),
    (libc::SYS_link, "link", At(1)),
    (libc::SYS_linkat, "linkat", PathAt(3)),
    (libc::SYS_symlink, "symlink", At(1)),
    (libc::SYS_symlinkat, "symlinkat", PathAt(2)),
    (libc::SYS_mknod, "mknod", At(0)),
    (libc::SYS_mknodat, "mknodat", PathAt(1)),
    (libc::SYS_truncate, "truncate", At(0)),
    (libc::SYS_ftruncate, "ftruncate", Descriptor(0)),
    (libc::SYS_fallocate, "fallocate", Descriptor(0)),
    (libc::SYS_write, "write", Descriptor(0)),
    (libc::SYS_pwrite64, "pwrite", Descriptor(0)),
    (libc::SYS_writev, "writev", Descriptor(0)),
    (libc::SYS_pwritev, "pwritev", Descriptor(0)),
    (libc::SYS_sendfile, "sendfile", Descriptor(0)),
    (libc::SYS_splice, "splice", Descriptor(2)),
    (libc::SYS_copy_file_range, "copy_file_range", Descriptor(2)),
    (libc::SYS_fsync, "fsync", Descriptor(0)),
    (libc::SYS_fdatasync, "fdatasync", Descriptor(0)),
    (libc::SYS_syncfs, "syncfs", Descriptor(0)),
    (libc::SYS_flock, "flock", Descriptor(0)),
    (libc::SYS_fchmod, "fchmod", Descriptor(0)),
    (libc::SYS_fchown, "fchown", Descriptor(0)),
    (libc::SYS_fchmodat, "fchmodat", PathAt(1)),
    (libc::SYS_fchownat, "fchownat", PathAt(1)),
    (libc::SYS_mount, "mount", At(1)),
    (libc::SYS_umount2, "umount2", At(0)),
    (libc::SYS_kill, "kill", Signalled(1)),
    (libc::SYS_tgkill, "tgkill", Signalled(2)),
    (
        libc::SYS_pidfd_send_signal,
        "pidfd_send_signal",
        Signalled(1),
    ),
    (libc::SYS_clone, "clone", Process),
    (libc::SYS_clone3, "clone3", ProcessAt),
    (libc::SYS_fork, "fork", Nothing),
    (libc::SYS_vfork, "vfork", Nothing),
    (libc::SYS_process_vm_writev, "process_vm_writev", Nothing),
    (libc::SYS_process_madvise, "process_madvise", Nothing),
    (libc::SYS_ptrace, TRACING, Nothing),
];

/// `runtime-hooks/remote-call` tests the death of a process that makes a call for another, so it
/// counts apart.
const TRACING: &str = "ptrace";

/// The directory of the stand-in's orders.
const STANDIN: &str = "/run/stasis-standin";
/// The directory of images of containers in test hosts.
const IMAGES: &str = "/images";
const LOGS_OF_CRIU: [&str; 2] = ["dump.log", "restore.log"];

/// Calls that need room on a disk, or a working disk.
const OF_FILES: [&str; 18] = [
    "openat",
    "mkdir",
    "mkdirat",
    "rename",
    "renameat",
    "renameat2",
    "linkat",
    "ftruncate",
    "fallocate",
    "write",
    "pwrite",
    "writev",
    "pwritev",
    "sendfile",
    "splice",
    "copy_file_range",
    "fsync",
    "syncfs",
];

impl Call {
    /// Returns the call that a thread is about to make, if it changes something.
    #[must_use]
    pub fn of(thread: Pid, registers: &user_regs_struct) -> Option<Self> {
        let number = i64::try_from(registers.orig_rax).ok()?;
        let (_, name, target) = CALLS.iter().find(|(known, ..)| *known == number)?;
        let of = |path| Some(Self { name, path });
        let new_process = |flags: u64| {
            let is_thread = flags & u64::from(libc::CLONE_THREAD.unsigned_abs()) != 0;
            if is_thread { None } else { of(None) }
        };
        match *target {
            At(index) => of(path(thread, registers, None, index)),
            PathAt(index) => of(path(thread, registers, Some(index - 1), index)),
            Opened(index, flags) => {
                let changing = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
                let flags = argument(registers, flags);
                (flags & u64::from(changing.unsigned_abs()) != 0).then_some(())?;
                let path = path(thread, registers, index.checked_sub(1), index);
                // Programs change the memory of others through these files, and mostly read it.
                let is_memory = path.as_ref().is_some_and(|path| path.ends_with("mem"));
                if is_memory { None } else { of(path) }
            }
            Descriptor(index) => {
                let open = format!("/proc/{thread}/fd/{}", argument(registers, index));
                let path = fs::read_link(open).ok();
                // The threads of a program wake each other with these.
                let is_inner = |path: &PathBuf| path.starts_with("anon_inode:[eventfd]");
                (!path.as_ref().is_some_and(is_inner)).then_some(())?;
                of(path)
            }
            // Go interrupts its own threads with SIGURG; 0 only asks.
            Signalled(index) => {
                let signal = argument(registers, index);
                let inner = [0, u64::from(libc::SIGURG.unsigned_abs())];
                (!inner.contains(&signal)).then_some(())?;
                of(None)
            }
            Process => new_process(registers.rdi),
            ProcessAt => {
                let mut flags = [0; 8];
                read(thread, registers.rdi, &mut flags)?;
                new_process(u64::from_ne_bytes(flags))
            }
            Nothing => of(None),
        }
    }

    /// Whether a plan counts it.
    pub fn is_of(&self, class: Class) -> bool {
        // A fault at the stand-in's orders would hit the stand-in itself, and may undo all of them;
        // CRIU logs each of its steps.
        let is_no_step = self.path.as_ref().is_some_and(|path| {
            path.starts_with(STANDIN) || LOGS_OF_CRIU.iter().any(|log| path.ends_with(log))
        });
        match class {
            _ if is_no_step => false,
            Class::Changes => self.name != TRACING,
            Class::Tracing => self.name == TRACING,
            Class::Files => self.is_of_file(),
            Class::Images => self
                .path
                .as_ref()
                .is_some_and(|path| path.starts_with(IMAGES)),
        }
    }

    fn is_of_file(&self) -> bool {
        let elsewhere = ["/proc", "/sys", "/dev"];
        let is_log = |path: &PathBuf| {
            path.extension().is_some_and(|ending| ending == "log")
                || ["log.json", "log/stasis"]
                    .iter()
                    .any(|log| path.ends_with(log))
        };
        let is_on_disk = self.path.as_ref().is_some_and(|path| {
            // A descriptor of a pipe or socket has no path from the root.
            path.has_root()
                && !is_log(path)
                && !elsewhere.iter().any(|other| path.starts_with(other))
        });
        is_on_disk && OF_FILES.contains(&self.name)
    }
}

/// Prints without numbers, which differ from one run to the next.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let Some(path) = &self.path else {
            return Ok(());
        };
        f.write_str(" ")?;
        let mut in_number = false;
        for letter in path.display().to_string().chars() {
            let is_digit = letter.is_ascii_digit();
            match (is_digit, in_number) {
                (true, false) => f.write_str("N")?,
                (true, true) => {}
                (false, _) => write!(f, "{letter}")?,
            }
            in_number = is_digit;
        }
        Ok(())
    }
}

fn argument(registers: &user_regs_struct, index: usize) -> u64 {
    let arguments = [
        registers.rdi,
        registers.rsi,
        registers.rdx,
        registers.r10,
        registers.r8,
        registers.r9,
    ];
    arguments[index]
}

/// Returns the path that a call has in this argument, from the directory of the descriptor in that
/// one, or the working directory. CRIU names the files of an image so.
fn path(
    thread: Pid,
    registers: &user_regs_struct,
    directory: Option<usize>,
    index: usize,
) -> Option<PathBuf> {
    let path = string(thread, argument(registers, index))?;
    if path.has_root() {
        return Some(path);
    }
    let link = |link: String| fs::read_link(format!("/proc/{thread}/{link}")).ok();
    let opened = directory.and_then(|at| link(format!("fd/{}", argument(registers, at))));
    // AT_FDCWD is no descriptor. A thread that was killed has no links.
    let from = opened
        .or_else(|| link("cwd".to_owned()))
        .unwrap_or_default();
    Some(from.join(path))
}

/// Reads a path in the memory of a thread.
fn string(thread: Pid, address: u64) -> Option<PathBuf> {
    let mut bytes = [0; 256];
    let length = read(thread, address, &mut bytes)?;
    let text = bytes[..length].split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(String::from_utf8_lossy(text).into_owned()))
}

/// Reads as much of a thread's memory as exists.
fn read(thread: Pid, address: u64, bytes: &mut [u8]) -> Option<usize> {
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    memory.read_at(bytes, address).ok()
}
