//! Images on their way to and from OCI layouts and registries (docs/internals/image-format.md,
//! "In a registry").
//!
//! * [`PushRequest`] pushes an image, [`Incoming`] pulls one, [`begin`] pulls it in the background.
//! * [`workers`] are the processes that do so for `stasis-runtime`, which has no client of
//!   registries: pulls for new containers, pushes of stopped ones, and what is the latest image.

#[cfg(not(fuzzing))]
mod archive;
#[cfg(fuzzing)]
pub mod archive;
mod at_stop;
mod error;
#[cfg(test)]
#[path = "../../engine/src/bulk_memory/places/tests/fixtures.rs"]
mod fixtures;
mod local;
mod moved;
mod places;
mod pull;
mod push;
#[cfg(test)]
mod tests;
pub mod workers;

pub use error::MoveError;
pub use local::origin::{Origin, RemoteLocation};
pub use local::unpacked::Unpacked;
pub use moved::Moved;
pub use pull::{Begun, Documents, Incoming, begin};
pub use push::{Progress, PushRequest};
