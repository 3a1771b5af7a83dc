//! Images as registries carry them (docs/image-format.md, "In a registry").
//!
//! * [`Reference`] is what a user calls an image elsewhere.
//! * [`document`] has the JSON of OCI: [`Manifest`] and [`Descriptor`]. What is read has each key
//!   once, and no more of anything than an image has.
//! * [`Layout`] is a directory with blobs, as `skopeo copy` reads and writes it.
//! * [`bundle`] packs CRIU's files into one blob, and out of it.
//!
//! Everything is read as hostile: nothing here takes a path or a name from it, and what is not as
//! its digest says is never left under a name.

pub mod bundle;
pub mod digest;
pub mod document;
mod error;
pub mod layout;
mod reference;

pub use digest::Digest;
pub use document::descriptor::Descriptor;
pub use document::manifest::{Kind, Manifest};
pub use error::OciImageError;
pub use layout::Layout;
pub use layout::blob::NewBlob;
pub use reference::Reference;
