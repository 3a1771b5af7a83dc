//! Why a process is left as it is.

use std::fmt;
use std::io;

/// A function of the C library that the driver's library calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// It copies memory.
    Memcpy,
    /// It maps memory.
    Mmap,
}

impl Function {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"memcpy" => Some(Self::Memcpy),
            b"mmap" => Some(Self::Mmap),
            _ => None,
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memcpy => "memcpy",
            Self::Mmap => "mmap",
        })
    }
}

/// Why the driver copies the GPU memory of a process in its own way.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It has ended.
    #[error("it has ended")]
    Ended,
    /// Only one process may trace another.
    #[error("it is being traced, by a debugger or the like")]
    Traced,
    /// It does not use CUDA, or not by the library of this name.
    #[error("it has no libcuda.so mapped")]
    NoDriver,
    /// As dlmopen(3) does it: which of them has the GPU memory is not known.
    #[error("it has libcuda.so mapped more than once")]
    DriverTwice,
    /// This way is written for x86-64.
    #[error("its libraries are not for x86-64")]
    Architecture,
    /// Not what a linker makes.
    #[error("a library of it cannot be read: {0}")]
    Malformed(String),
    /// The build of it that has passed a self-test cannot be told from others.
    #[error("its libcuda.so has no build id")]
    NoBuildId,
    /// There is none, or several.
    #[error("its libcuda.so does not call {0} through one slot")]
    NoSlot(Function),
    /// Linked with `-z now`, a library has slots that are read-only once they are bound. (One that
    /// is bound early because of `LD_BIND_NOW` alone keeps writable ones.)
    #[error("its libcuda.so has a read-only slot for {0} (full RELRO)")]
    ReadOnly(Function),
    /// Its target is no code of a file.
    #[error("something else answers its libcuda.so's calls of {0}")]
    Hooked(Function),
    /// An older one.
    #[error("its libcuda.so has no {0}")]
    NoFunction(&'static str),
    /// None that is known, or several.
    #[error("it does not have exactly one C library, or another than glibc")]
    OtherLibc,
    /// `/proc` or the process's memory.
    #[error("it cannot be looked at")]
    Unreadable(#[from] io::Error),
}
