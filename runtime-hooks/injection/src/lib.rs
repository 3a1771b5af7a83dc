//! Answers the driver's own copying of GPU memory by code of ours, for the time of one call.
//!
//! In a checkpoint libcuda makes one mapping for all GPU contents of its process and copies them
//! there, 2 MiB at a time, with one thread. It calls mmap(2) and `memcpy` of the C library through
//! slots of its procedure linkage table, which lie in writable memory, so 8 bytes of each decide
//! which code answers.
//!
//! * [`slots`]: finds these slots, or why they cannot be used. Changes nothing.
//! * [`code`]: the code that then answers, as it is built from `stasis-injected-copy`.
//! * [`prepare`]: puts the code into the process, where no thread calls it yet.
//!   [`Prepared::record`], which undoes all that follows, has to be on disk before.
//! * [`Prepared::arm`]: starts workers, and leads the slots to the code. Then the driver is called.
//! * [`Armed::disarm`]: puts all back but the mapping that the driver was given.
//! * [`contents_of`]: finds contents in a file of ours, [`file_of`]: opens it, [`own_files_of`]:
//!   opens it to free it, and [`make_private`]: moves the contents out of it.
//! * [`make_readable`]: makes addresses of devices readable while the devices are not mapped.
//! * [`rehearse`]: tries whether contents can come back, before they are taken away.
//! * [`detach`]: detaches contents from their process, and gives them back.
//! * [`survey`]: lists the GPU memory of a locked process, and the processes that it is from.
//! * [`imports`]: gives up memory that a locked process has from others, and maps it again.
//! * [`put_back`]: does what `disarm` does, after a process of ours that was killed.
//!
//! # If we are killed
//! The workers die with us. The code goes on alone: it is as fast as the driver was, and as
//! correct. While a thread of the process makes one of its two calls for us, a process without a
//! way back (`stasis-remote-call`) would be lost: a caller that may be killed has a process of its
//! own do all this.
//! Before the record exists, some 100 KiB of memory may be left in the process, and a range of
//! addresses without memory.

mod area;
mod arm;
pub mod code;
mod contents;
pub mod detach;
mod error;
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
