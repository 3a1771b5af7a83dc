//! The code that runs inside a CUDA process while its driver moves the contents of GPU memory.
//!
//! The driver (580) makes one `mmap` for all contents, then one `memcpy` for each 2 MiB, in one
//! thread. Here both are answered better: the `mmap` with a file of ours that is mapped already,
//! the `memcpy` by several helpers, which are processes that share the memory of the driver's
//! (`CLONE_VM`).
//!
//! The crate is built twice. For us it gives the layout of the [`Board`], and its tests run every
//! function. For the CUDA process the root is `image.rs`: freestanding, position-independent,
//! without data of its own, and the [`Board`] lies in the pages behind the code.
//!
//! The code may read and write the memory that it copies, and its board, and may call futex(2),
//! sched_yield(2), munmap(2), exit(2), and mmap(2) of libc. It uses no thread-local storage and
//! less than 4 KiB of stack, and it cannot panic: code that could is not linked.
//!
//! The files, from the bottom: `board` (the layout), `system` (system calls), `bytes` (a copy by
//! one thread), `job` (how a copy is shared out, and why that is correct), `serve` (a helper),
//! `copy` (memcpy), `mapping` (mmap).
#![cfg_attr(not(test), no_std)]

mod board;
mod bytes;
mod copy;
mod job;
mod mapping;
mod serve;
mod system;

pub use board::{Board, HELPERS, Reported, Settings};
pub use copy::memcpy;
pub use job::PART;
pub use mapping::{Call, mmap};
pub use serve::helper;

#[cfg(test)]
mod tests;
