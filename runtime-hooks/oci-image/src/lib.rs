//! Names and documents of images that registries carry (docs/internals/image-format.md, "In a
//! registry").
//!
//! * [`Reference`] is what a user calls an image elsewhere.
//! * [`document`] has the JSON of OCI: [`Manifest`] and [`Descriptor`]. A document has each key
//!   once, and no more of anything than an image has.
//!
//! Nothing here opens a file or a connection: `stasis-transfer` does.

pub mod digest;
pub mod document;
mod error;
mod reference;
pub mod repository;

pub use digest::Digest;
pub use document::announcement::Announcement;
pub use document::descriptor::Descriptor;
pub use document::manifest::{Kind, Manifest};
pub use error::OciImageError;
pub use reference::{ImageLocation, Reference};
pub use repository::RepositoryName;
