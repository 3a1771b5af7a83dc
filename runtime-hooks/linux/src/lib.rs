//! Access to the kernel for stasis, shared by the engine, the CRIU plugin and the shim.
//!
//! * [`ProcessRef`]: a process held by pidfd and start time, so that no other is mistaken for it.
//! * [`procfs`]: the files of `/proc/PID`. The processes of a container decide their contents:
//!   names and paths are bytes and need not be UTF-8, every read has an end, and a process that
//!   ends while it is read is no error.
//! * [`Snapshot`]: the processes of a container, which of them CRIU dumps, and which may use CUDA.
//! * [`mountinfo`]: the mounts of a mount namespace. [`process::host_name`]: its host name.
//! * [`thread`]: the attributes of a thread that the kernel keeps, and CRIU does not.
//! * [`tree`]: which processes descend from another one.
//! * [`cgroup`]: where cgroups of versions 1 and 2 are mounted, which of them a process is in,
//!   their processes and their freezer.
//! * [`process::kcmp`], [`pdeathsig`], [`open_files`]: single system calls.
//! * [`mod@file`]: files that are replaced whole or not at all, and read up to a limit.
//! * [`directory`]: directories that no other user can write into.
//! * [`access_list`]: lets one user search a directory, or read a file.
//! * [`file_system`]: what has to be on disk as a whole.
//! * [`memory_file`]: files in memory without a name.
//! * [`numa`]: memory near a device.
//! * [`pid_file`]: the pid that an OCI runtime writes into a file.
//! * [`escape`], [`error_chain`](mod@error_chain), [`exit_status`]: what people and parents get to
//!   see.

pub mod access_list;
pub mod cgroup;
pub mod directory;
pub mod error_chain;
pub mod escape;
pub mod exit_status;
pub mod file;
pub mod file_system;
pub mod memory_file;
pub mod mountinfo;
pub mod numa;
pub mod open_files;
pub mod pdeathsig;
pub mod pid_file;
pub mod process;
pub mod procfs;
pub mod snapshot;
pub mod thread;
pub mod tree;

pub use error_chain::error_chain;
pub use process::ProcessRef;
pub use snapshot::Snapshot;
