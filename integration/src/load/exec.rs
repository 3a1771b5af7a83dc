//! A process that comes and goes, and the containerd that was there.

/// The state of containerd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// The first containerd.
    #[default]
    First,
    /// The first one is killed, or will be in a moment.
    Down,
    /// The second containerd.
    Second,
}

/// A process that was added, or is going to be.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) container: String,
    pub(super) name: String,
    /// The exit status that it has to have.
    pub(super) status: u32,
    /// The exit status that a wait returned.
    pub(super) given: Option<u32>,
    /// The containerd that saw the whole of it; [`Phase::Down`] if none did.
    pub(super) seen_by: Phase,
}
