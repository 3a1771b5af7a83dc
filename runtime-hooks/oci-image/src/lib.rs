//! Images as registries carry them (docs/internals/image-format.md, "In a registry").
//!
//! * [`Reference`] is a user's name of an image elsewhere.
//! * [`document`] has the JSON of OCI: [`Manifest`] and [`Descriptor`]. Documents are accepted
//!   with each key once, and no more of anything than an image has.
//! * [`Elsewhere`] is a place with images: a [`Layout`], a directory with blobs as `skopeo copy`
//!   reads and writes it, or a [`Registry`].
//! * [`bundle`] packs CRIU's files into one blob, and out of it.
//! * [`archive`] is the archive of an image and an engine's own files.
//!
//! Everything is read as hostile: no path or name is taken from it, and data that differs from its
//! digest never keeps a name.

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
