//! CRIU plugin that guards images with holes, and holds the tasks of a restore.
//!
//! GPU contents are stored by the engine (crate `stasis-memory-store`), and away from their
//! processes while CRIU dumps these: CRIU's images have a hole there, which CRIU alone would
//! restore without contents. The plugin makes sure that an image with holes has its index, and that
//! no restore leaves them unfilled. And it freezes the tasks of a restore, if the engine wants none
//! to run yet. It moves no memory.
//!
//! # What CRIU calls ([`abi`]), and what happens
//! | when | hook | here |
//! | --- | --- | --- |
//! | a dump begins | `init` | [`dump::begin`]: reads the engine's [`request`] |
//! | the tree is stopped | `CHECKPOINT_DEVICES` | [`dump::verify`]: the index is there |
//! | the dump has ended | `exit` | [`dump::end`] |
//! | a restore begins | `init` | [`restore::begin`]: refuses holes that no process fills |
//! | the tasks are complete | `RESUME_DEVICES_LATE` | [`restore::complete`]: holds them |

// Nothing here is public: the map links to private modules.
#![allow(rustdoc::private_intra_doc_links)]

mod abi;
mod criu;
mod dump;
mod error;
mod fault_injection;
mod request;
mod restore;
mod tasks;

/// The plugin's name, which CRIU records in the image.
const NAME: &str = "stasis_memory";
