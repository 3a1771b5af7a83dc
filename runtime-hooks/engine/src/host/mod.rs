//! State of this machine and of this process: boots, signals, deadlines, disks, locks on files
//! and directories, respawning, lending, time.

pub(crate) mod boot;
pub mod caller;
pub mod cancel;
pub mod deadline;
pub(crate) mod directory_lock;
pub mod disk;
pub mod environment;
pub mod file_lock;
pub(crate) mod lent;
pub mod respawn;
pub mod signal;
pub mod time;
