//! Why a process is left as it is.

use std::fmt;
use std::io;

/// A function of the C library that the driver's library calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Copies memory.
    Memcpy,
    /// Maps memory.
    Mmap,
    /// Allocates memory of zeros.
    Calloc,
    /// Frees memory.
    Free,
}

impl Function {
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"memcpy" => Some(Self::Memcpy),
            b"mmap" => Some(Self::Mmap),
            b"calloc" => Some(Self::Calloc),
            b"free" => Some(Self::Free),
            _ => None,
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memcpy => "memcpy",
            Self::Mmap => "mmap",
            Self::Calloc => "calloc",
            Self::Free => "free",
        })
    }
}

/// Why the driver copies the GPU memory of a process in its own way.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The process has ended.
    #[error("it has ended")]
    Ended,
    /// Only one process may trace another.
    #[error("it is being traced, by a debugger or the like")]
    Traced,
    /// The process does not use CUDA, or not by a library of this name.
    #[error("it has no libcuda.so mapped")]
    NoDriver,
    /// As by dlmopen(3): it is not known which of them has the GPU memory.
    #[error("it has libcuda.so mapped more than once")]
    DriverTwice,
    /// The code is written for x86-64.
    #[error("its libraries are not for x86-64")]
    Architecture,
    /// No linker writes it so.
    #[error("a library of it cannot be read: {0}")]
    Malformed(String),
    /// A build that has passed a self-test cannot be recognised.
    #[error("its libcuda.so has no build id")]
    NoBuildId,
    /// No slot, or several.
    #[error("its libcuda.so does not call {0} through one slot")]
    NoSlot(Function),
    /// A library linked with `-z now` has slots that are read-only once they are bound. (A library
    /// that is bound early by `LD_BIND_NOW` alone keeps writable slots.)
    #[error("its libcuda.so has a read-only slot for {0} (full RELRO)")]
    ReadOnly(Function),
    /// The slot's target is no code of a file.
    #[error("something else answers its libcuda.so's calls of {0}")]
    Hooked(Function),
    /// An older driver.
    #[error("its libcuda.so has no {0}")]
    NoFunction(&'static str),
    /// No C library that is known, or several.
    #[error("it does not have exactly one C library, or another than glibc")]
    OtherLibc,
    /// `/proc` or the process's memory.
    #[error("it cannot be looked at")]
    Unreadable(#[from] io::Error),
}
