//! A process that comes and goes, and which containerd was there.

/// What containerd does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It is the first one.
    #[default]
    First,
    /// It is killed, or will be in a moment.
    Down,
    /// It is the second one.
    Second,
}

/// A process that was added, or is going to be.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) container: String,
    pub(super) name: String,
    /// What it had to end with.
    pub(super) status: u32,
    /// What it has ended with, as a wait says.
    pub(super) given: Option<u32>,
    /// Which containerd saw the whole of it; [`Phase::Down`] if none did.
    pub(super) seen_by: Phase,
}
