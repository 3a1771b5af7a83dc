//! State of this machine and of this process: signals, deadlines, huge pages, respawning, time.

pub mod cancel;
pub mod deadline;
pub mod huge_pages;
pub(crate) mod respawn;
pub(crate) mod time;
