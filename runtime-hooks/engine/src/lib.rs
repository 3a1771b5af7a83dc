//! The engine of stasis: checkpoint and restore of running GPU containers.
//!
//! One process per operation: `stasis-runtime` parses the command line of runc or crun and calls
//! one of four verbs; every other command is passed on by exec(2).
//!
//! # Checkpoint ([`checkpoint`])
//! 1. **Look**: the container and its processes ([`container`]), and which of them use CUDA
//!    ([`preflight::cuda_processes`]). A frozen container is thawed for that.
//! 2. **Pre-flight**: what the driver or CRIU cannot save refuses the checkpoint ([`preflight`],
//!    [`checkpoint::plan`]). Nothing has been changed until here.
//! 3. **Record** the intent on disk ([`operation`]), and run the container's hook
//!    ([`low_level::hook`]).
//! 4. **Lock** all CUDA processes together ([`stasis_gpu::cuda::lock`]).
//! 5. **GPU checkpoint** of all ([`stasis_gpu::cuda::job`]), if memory limits have room
//!    ([`container::memory_limit`]); forked children give up inherited devices
//!    ([`container::inherited_devices`]).
//! 6. **Freeze** again if the caller had ([`stasis_linux::cgroup`]) and write the manifest
//!    ([`image::manifest`]).
//! 7. **Dump** by the low-level runtime and CRIU ([`low_level`]), with bulk memory in our hands
//!    ([`bulk_memory`]).
//! 8. **Go on**: GPU restore and unlock, or later at `resume`.
//!
//! A failure at any step ends in [`recovery`], which asks the driver what is instead
//! of remembering what was done. If the operation is killed, or processes do not answer, its keeper
//! does so ([`recovery`]).
//!
//! # Restore ([`restore()`](restore::restore))
//! 1. **Admission**: GPUs, room and bulk memory, before anything is started
//!    ([`restore::admission`]).
//! 2. **Restore** by the low-level runtime and CRIU ([`low_level`]).
//! 3. **Device nodes**, then **GPU restore** and **unlock** of all ([`restore::gpu_state`]), and
//!    the container's hook.
//!
//! # Resume and suspend
//! [`suspend`] frees the GPUs of a container in place, and gives them back, for `stasis suspend`
//! and `cuda-checkpoint`; [`suspend::resume`] gives a paused container its GPU state back, after
//! the same admission. [`delete`] ends an operation that is under way and forgets its record.
//!
//! # Failures
//! [`error`] has the errors with their kind and the state of the container afterwards, and the
//! line of each operation in `operations.log`.
//!
//! # Above the engine
//! Programs put it together with crates that call it, and that it does not know: `stasis-lifecycle`
//! has [`restore::created`] and [`restore::start`] in the place of a create and a start, and
//! [`checkpoint`] in that of a stop; `stasis-group` has operations meet at each step
//! ([`companions`]).
//!
//! Rooms are named from the top down in this order: the verbs; `recovery`, `companions`,
//! `bulk_memory`, `error`, `preflight`, `low_level`, `image`, `operation`, `context`, `container`.
//! A room names only rooms below it; a test of the repository checks that.

pub mod bulk_memory;
pub mod checkpoint;
pub mod companions;
pub mod container;
pub mod context;
pub mod delete;
pub mod error;
#[cfg(test)]
#[path = "../../gpu/src/cuda/job/tests/fake_driver.rs"]
mod fake_driver;
#[cfg(test)]
#[path = "../../gpu/src/cuda/job/tests/fixtures.rs"]
mod fixtures;
pub mod image;
#[cfg(test)]
#[path = "../../../integration/src/check/left_out.rs"]
mod left_out;
pub mod low_level;
pub mod operation;
pub mod preflight;
pub mod recovery;
pub mod request;
pub mod restore;
pub mod suspend;
pub mod workers;

#[cfg(test)]
extern crate self as stasis_engine;
