//! `stasis push` and `stasis pull`: move images to and from the places of container images
//! (docs/internals/image-format.md, "In a registry"): registries and OCI layouts.

mod annotations;
mod archived;
mod arriving;
mod at_stop;
mod beside;
mod engine;
pub(super) mod login;
mod noted;
pub mod pull;
pub mod push;
mod report;
mod source;
mod staging;
pub(super) mod unpacked;
pub mod workers;

pub(super) use pull::parts::describe;

#[cfg(test)]
mod tests;
