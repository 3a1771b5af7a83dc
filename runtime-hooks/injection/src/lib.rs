//! The driver's own copying of GPU memory, answered by code of ours for the time of one call.
//!
//! In a checkpoint libcuda makes one mapping for all GPU contents of its process and copies them
//! there, 2 MiB at a time, with one thread. It calls mmap(2) and `memcpy` of the C library through
//! slots of its procedure linkage table, which lie in writable memory, so 8 bytes of each decide
//! who answers.
//!
//! * [`slots`]: where these slots are, or why they cannot be used. Nothing is changed for that.
//! * [`code`]: what then answers, as it is built from `stasis-injected-copy`.
//! * [`prepare`]: the code is put into the process, where nobody calls it yet. [`Prepared::record`]
//!   says how to undo all that follows; it has to be on disk before.
//! * [`Prepared::arm`]: workers begin, and the slots lead to the code. Now the driver is called.
//! * [`Armed::disarm`]: all is as before, but for the mapping that the driver was given.
//! * [`contents_of`]: where contents are in a file of ours, [`file_of`]: which, [`own_files_of`]:
//!   for whoever frees it, and [`make_private`]: no longer there.
//! * [`make_readable`]: addresses that devices were mapped at can be read while they are away.
//! * [`rehearse`]: whether contents can come back, before they are taken away.
//! * [`hole`]: contents are taken away from their process, and given back.
//! * [`survey`]: which GPU memory a locked process has, and from whom.
//! * [`imports`]: memory that a locked process has from others is given up, and mapped again.
//! * [`put_back`]: the same, by whoever comes after a process of ours that was killed.
//!
//! # If we are killed
//! The workers die with us. The code goes on alone: it is as fast as the driver was, and as right.
//! While a thread of the process makes one of its two calls for us, a process without a way back
//! (`stasis-remote-call`) would be lost: who may be killed has all this done by a process of its
//! own.
//! Before the record exists, some 100 KiB of memory may be left in the process, and a range of
//! addresses without memory.

mod area;
mod arm;
pub mod code;
mod contents;
mod error;
pub mod hole;
pub mod imports;
mod prepare;
mod private;
mod put_back;
mod readable;
mod record;
mod rehearsal;
pub mod slots;
pub mod survey;
mod workers;

pub use arm::Armed;
pub use contents::{ContentsFile, Sharing, contents_of, file_of, own_files_of};
pub use error::InjectionError;
pub use prepare::{Prepared, Transfer, prepare};
pub use private::make_private;
pub use put_back::{PutBack, Returned, put_back};
pub use readable::{devices_of, make_readable, unreadable};
pub use record::{Record, Span};
pub use rehearsal::rehearse;
pub use stasis_injected_copy::Reported;
pub use workers::count as worker_count;

#[cfg(test)]
mod tests;
