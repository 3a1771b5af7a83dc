//! Containers that begin and end with an image, as their annotations ask: a job that is stopped on
//! one node goes on in a new container, there or elsewhere.
//!
//! This crate finds, names, keeps and has images fetched and pushed; the engine, which knows none
//! of that, makes and restores them.
//!
//! * [`at_create`]: `create` restores the image that a container names, and `start` lets it go on.
//! * [`at_stop`]: a checkpoint takes the place of a signal that would stop the container.
//! * [`stopped`]: the directory of a key, and the images that are still to be pushed.

pub mod at_create;
pub mod at_stop;
pub mod pod;
pub mod request;
pub mod stopped;
#[cfg(test)]
mod tests;
