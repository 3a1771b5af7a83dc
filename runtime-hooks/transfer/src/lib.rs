//! Images elsewhere: in OCI layouts and in registries (docs/internals/image-format.md, "In a
//! registry").
//!
//! * [`Elsewhere`] is a place with images: a [`Layout`], a directory with blobs as `skopeo copy`
//!   reads and writes it, or a [`Registry`]. [`Open`] opens the place that a reference names.
//! * [`bundle`] packs CRIU's files into one blob, and unpacks them.
//! * [`archive`] reads and writes the archives into which engines put an image and their own files.
//!
//! Everything is read as hostile: no path or name is taken from it, and a blob whose digest is
//! another never gets a name.

pub mod archive;
pub mod bundle;
pub mod elsewhere;
pub mod layout;
mod open;
mod registry;

pub use elsewhere::{Elsewhere, NewBlob};
pub use layout::Layout;
pub use open::Open;
pub use registry::Registry;
pub use registry::tagged::Tagged;
