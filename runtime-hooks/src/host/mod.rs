//! State of this machine and of this process: signals, deadlines, disks, huge pages, respawning,
//! time.

pub mod cancel;
pub mod deadline;
pub mod disk;
pub mod huge_pages;
pub(crate) mod respawn;
pub(crate) mod time;
