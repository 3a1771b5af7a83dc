//! Images as registries carry them (docs/image-format.md, "In a registry").
//!
//! * [`Reference`] is what a user calls an image elsewhere.
//! * [`document`] has the JSON of OCI: [`Manifest`] and [`Descriptor`]. What is read has each key
//!   once, and no more of anything than an image has.
//! * [`Elsewhere`] is where they are: a [`Layout`], a directory with blobs as `skopeo copy` reads
//!   and writes it, or a [`Registry`].
//! * [`bundle`] packs CRIU's files into one blob, and out of it.
//! * [`archive`] is what engines put an image and their own files into.
//!
//! Everything is read as hostile: nothing here takes a path or a name from it, and what is not as
//! its digest says is never left under a name.

pub mod archive;
pub mod bundle;
pub mod digest;
pub mod document;
pub mod elsewhere;
mod error;
pub mod layout;
mod reference;
mod registry;

pub use digest::Digest;
pub use document::announcement::Announcement;
pub use document::descriptor::Descriptor;
pub use document::manifest::{Kind, Manifest};
pub use elsewhere::{Elsewhere, NewBlob};
pub use error::OciImageError;
pub use layout::Layout;
pub use reference::Reference;
pub use registry::Registry;
pub use registry::name::RepositoryName;
pub use registry::tagged::Tagged;
