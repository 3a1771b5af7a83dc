//! CRIU plugin that moves bulk memory with many threads.
//!
//! CRIU copies memory with one thread, page by page. This plugin takes GPU contents, which are
//! memory of the tasks for the time of a dump, out of CRIU's way: into a store of its own (crate
//! `stasis-memory-store`) before CRIU looks at any memory, and back before any task runs; on
//! request other large private areas as well. CRIU saves the rest as ever. Without a request of the
//! engine it takes nothing, and restores what an image has.
//!
//! # What CRIU calls ([`abi`]), and what happens
//! | when | hook | here |
//! | --- | --- | --- |
//! | a dump begins | `init` | [`dump::begin`]: reads the engine's request ([`engine`]) |
//! | the tree is stopped | `CHECKPOINT_DEVICES` | [`dump::take`]: memory goes into the store |
//! | the dump has ended | `exit` | [`dump::end`]: gives the memory back if the tasks go on |
//! | a restore begins | `init` | [`restore::begin`]: opens index and packs, or refuses |
//! | the tasks are complete | `RESUME_DEVICES_LATE` | [`restore::complete`], by [`refill`] |
//!
//! The steps of [`dump`] are in its own page. [`tasks`] reads the stopped tasks, [`engine`] is the
//! exchange of files with the engine, [`uffd`] and [`refill`] serve both dump and restore.

// Nothing here is public: the map links to private modules.
#![allow(rustdoc::private_intra_doc_links)]

mod abi;
mod criu;
mod dump;
mod engine;
mod error;
mod fault_injection;
mod refill;
mod restore;
mod tasks;
mod uffd;

/// The fuzz target `smaps`.
#[cfg(fuzzing)]
pub fn fuzz_smaps(text: &[u8]) {
    let _ = tasks::smaps::read(text);
}

/// The plugin's name, which CRIU records in the image.
const NAME: &str = "stasis_memory";
