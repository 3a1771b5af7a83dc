//! Errors in a process that was found suitable.

use std::io;

/// Why the driver's copying was not sped up, or could not be put back.
#[derive(Debug, thiserror::Error)]
pub enum InjectionError {
    /// Nothing was changed.
    #[error("code and memory cannot be put into the process; it is as it was")]
    Prepare(#[source] io::Error),
    /// The process has been put back.
    #[error("the driver's calls cannot be led to other code; the process is as it was")]
    Arm(#[source] io::Error),
    /// The process is still changed.
    #[error("what was put into the process cannot all be taken out; that can be tried again")]
    PutBack(#[source] io::Error),
    /// The GPU contents are where they were.
    #[error("its GPU contents cannot be made ordinary memory of it")]
    Private(#[source] io::Error),
    /// The GPU contents are where they were.
    #[error(
        "the process may not have its GPU contents back as its own memory (RLIMIT_DATA, or the \
         commit limit of a kernel with vm.overcommit_memory = 2): raise that limit"
    )]
    Rehearsal(#[source] io::Error),
    /// The GPU contents are where they were, or their place is still empty.
    #[error("the place of its GPU contents cannot be emptied or filled; that can be tried again")]
    Hole(#[source] io::Error),
}
