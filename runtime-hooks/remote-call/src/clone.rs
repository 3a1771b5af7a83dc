//! clone(2) of processes that share memory with the process that they are children of.

use nix::libc;

/// Where the kernel writes the number of a new process, in the memory that it shares: the number
/// that it has in its parent's pid namespace, 4 bytes each.
#[derive(Debug, Clone, Copy)]
pub struct Numbered {
    /// Written before the process exists for anybody, and never cleared: with this it can be found
    /// and reaped whenever we may be killed.
    pub listed: u64,
    /// Written before its first instruction, and cleared by the kernel when it has ended, in
    /// whatever way (`CLONE_CHILD_CLEARTID`); aligned. Until then it may still change memory.
    pub cleared_at_end: Option<u64>,
}

/// The arguments of a clone(2) that shares memory and `more`. The new process is traced as the
/// caller is. Its parent does not hear of its end: no signal is in the lowest byte.
pub(crate) fn arguments(more: i32, numbered: Option<Numbered>) -> [u64; 5] {
    let mut flags = libc::CLONE_VM | libc::CLONE_PTRACE | more;
    let listed = numbered.map(|numbered| numbered.listed);
    let cleared = numbered.and_then(|numbered| numbered.cleared_at_end);
    if listed.is_some() {
        flags |= libc::CLONE_PARENT_SETTID;
    }
    if cleared.is_some() {
        flags |= libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    }
    let flags = flags.unsigned_abs().into();
    let (listed, cleared) = (listed.unwrap_or(0), cleared.unwrap_or(0));
    // The last two are in another order elsewhere (clone(2)).
    if cfg!(target_arch = "x86_64") {
        [flags, 0, listed, cleared, 0]
    } else {
        [flags, 0, listed, 0, cleared]
    }
}
