//! The code that the checkpoint thread of a CUDA driver runs for us, while its process is locked.
//!
//! The driver holds every call of a locked process but those of the thread that carries out
//! checkpoints (`cuCheckpointProcessGetRestoreThreadId`; driver 580.159), so this thread can ask
//! libcuda which GPU memory the process has, with which rights, and from which processes. We send
//! it here (`stasis-remote-call`); it makes its calls, and returns by itself to what it was doing,
//! whether we live or not: a call inside of libcuda is never interrupted.
//!
//! The crate is built twice, as `stasis-injected-copy` is. For us it gives the layout of the
//! [`Board`], and its tests run every function with a driver of theirs. For the CUDA process the
//! root is `image.rs`: freestanding, position-independent, without data of its own.
//!
//! A survey changes nothing that lasts. A handle is released in the step that took it, and so is a
//! context. Peer access that a context does not have is enabled and disabled again, which is how
//! the code learns that it was missing; peer access that a context has is left alone.
//!
//! Memory that comes from other processes is given up before a checkpoint, and mapped again after
//! the restore. The asking process has several processes do so at the same time, and the thread
//! waits for it, but never for long: if it does not answer, the thread closes the descriptors that
//! it has made, takes back its tags, and ends by itself.
//!
//! The files, from the bottom: `board` (the layout), `system` (calls of the kernel), `driver`
//! (calls of libcuda), `contexts` and `errand` (used by all), `peers` and `allocations` (the
//! survey's questions), `hooks` (handles keep their values), `identify`, `drop_import`, `export`,
//! `mapping` and `import` (work on imports), `survey` (the whole).
#![cfg_attr(not(test), no_std)]

mod allocations;
mod board;
mod contexts;
mod driver;
mod drop_import;
mod errand;
mod export;
mod hooks;
mod identify;
mod import;
mod mapping;
mod peers;
mod survey;
mod system;

pub use board::{
    Allocation, Answer, Board, Cursor, DEVICES, FILES, ITEMS, Item, Kind, NO_CONTEXT, Read,
    Request, SLOTS, VisitState, What, Where,
};
pub use driver::{FUNCTIONS, Other, name_of};
pub use survey::survey;

#[cfg(test)]
mod tests;
