//! The ways in which containerd starts this program (runtime/v2/README.md): `start` finds or starts
//! the shim of a container, `delete` cleans up after a shim that was killed, and `-info` describes
//! the runtime. `start` starts the program once more, as the shim itself: that is `serve`.

mod answer;
mod bootstrap;
pub(crate) mod delete;
pub(crate) mod info;
pub(crate) mod serve;
mod socket;
pub(crate) mod start;
