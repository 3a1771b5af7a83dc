//! What containerd is sent: the events of tasks, and times in the form of its messages.

pub(crate) mod events;
pub(crate) mod timestamp;

/// The name of the runtime, by which containerd finds this program.
pub(crate) const RUNTIME: &str = "io.containerd.stasis.v2";
