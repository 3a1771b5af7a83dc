//! State of this machine and of this process: boots, signals, deadlines, disks, locks on files
//! and directories, records, respawning, capabilities, lending, time.

pub mod boot;
pub mod caller;
pub mod cancel;
pub mod capabilities;
pub mod deadline;
pub mod directory_lock;
pub mod disk;
pub mod environment;
pub mod file_lock;
pub mod json_record;
pub mod lent;
pub mod output;
pub mod respawn;
pub mod signal;
pub mod time;
